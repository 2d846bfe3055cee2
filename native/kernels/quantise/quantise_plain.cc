#define OUZEL_ISA plain
#include "kernels/quantise/quantise_impl.h"
