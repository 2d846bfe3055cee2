// Dot products of four bytes in 512-bit registers with VNNI; see dot.h. Needs AVX-512 BW and VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/dot_avx512_bytes.h"

namespace ouzel::OUZEL_ISA {

struct DotByte {
  static constexpr bool kFolded = true;
  using Weights = bvec;
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) { return w; }
  [[gnu::always_inline]] static inline Sum begin(int32_t start) { return _mm512_set1_epi32(start); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, Weights w, bvec x) { return _mm512_dpbusd_epi32(sum, w, x); }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t) { return sum; }
};

using DotNibble = DotByte;

}  // namespace ouzel::OUZEL_ISA
