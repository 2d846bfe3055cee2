// Compiled with the flags of avx512.cc and -mavx512vnni; always with -ffp-contract=off.
#define OUZEL_ISA avx512vnni
#include "base/f32x16_avx512.h"
#include "base/dot_avx512vnni.h"
#include "kernels/isa/table.h"
