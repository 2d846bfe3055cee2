// Compiled with the baseline of any machine; always with -ffp-contract=off.
#define OUZEL_ISA plain
#include "base/f32x16_plain.h"
#include "base/dot_plain.h"
#include "kernels/isa/table.h"
