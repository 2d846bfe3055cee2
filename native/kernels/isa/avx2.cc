// Compiled with -mavx2 -mfma -mf16c; always with -ffp-contract=off.
#define OUZEL_ISA avx2
#include "base/f32x16_avx2.h"
#include "base/dot_avx2.h"
#include "kernels/isa/table.h"
