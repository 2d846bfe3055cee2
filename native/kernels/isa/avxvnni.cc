// Compiled with -mavxvnni -mavx2 -mfma -mf16c; always with -ffp-contract=off.
#define OUZEL_ISA avxvnni
#include "base/f32x16_avx2.h"
#include "base/dot_avxvnni.h"
#include "kernels/isa/table.h"
