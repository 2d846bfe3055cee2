// Compiled with -mavx2; always with -ffp-contract=off.
#define OUZEL_ISA avx2
#include "kernels/quantise/quantise_impl.h"
