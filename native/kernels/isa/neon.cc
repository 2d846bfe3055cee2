// Compiled with the baseline of AArch64; always with -ffp-contract=off.
#define OUZEL_ISA neon
#include "base/f32x16_neon.h"
#include "base/dot_neon.h"
#include "kernels/isa/table.h"
