// Compiled with -march=armv8.2-a+dotprod; always with -ffp-contract=off.
#define OUZEL_ISA neondot
#include "base/f32x16_neon.h"
#include "base/dot_neon.h"
#include "kernels/isa/table.h"
