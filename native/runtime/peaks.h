// What the machine can do at best, measured now: the yardstick of the benchmarks.
#pragma once

#include "runtime/machine.h"

namespace ouzel {

struct Peaks {
  double flops;       // float32 operations a second of fused multiply-adds in registers, all threads
  double read_bytes;  // bytes a second read from memory, all threads
};

// Takes about a second and 256 MiB; throws Refused when memory ends.
Peaks measure_peaks(Machine& machine);

// Integer operations a second of dot products of bytes in registers, all threads; the yardstick of packed weights.
double measure_dot_peak(Machine& machine);

}  // namespace ouzel
