// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c; always with -ffp-contract=off.
#define OUZEL_ISA avx512
#include "base/f32x16_avx512.h"
#include "base/dot_avx512.h"
#include "kernels/isa/table.h"
