// Exact integer dot products of weights (unsigned bytes) and codes (signed bytes, -127..127). An ISA file includes its
// f32x16 header, then one of the dot_<isa>.h headers, which give
//   bvec, ivec       4 kVec bytes; kVec 32-bit integers, lane i belonging to bytes 4i .. 4i + 3
//   load_bytes, low_nibbles, high_nibbles, set_codes (the same four codes in every lane), int_to_float
//   DotByte          weights u in 0..255, for the sum of (u - 128) * code
//   DotNibble        weights u in 0..15, for start + the sum of u * code, over at most the 32 numbers of one group
// The last two work on one group: begin, a step for every four codes, end. `start` is added once; DotByte::kFolded says
// that it takes its -128 * sum of codes from there, else it centres the weights itself and looks at no start.
#pragma once

#include "base/f32x16.h"
