// Dot products of four bytes in 256-bit registers with VNNI; see dot.h. Needs AVX-VNNI, or AVX-512 VNNI and VL, whose
// instruction does the same in another encoding.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/dot_avx2_bytes.h"

namespace ouzel::OUZEL_ISA {

struct DotByte {
  static constexpr bool kFolded = true;
  using Weights = bvec;
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) { return w; }
  [[gnu::always_inline]] static inline Sum begin(int32_t start) { return _mm256_set1_epi32(start); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, Weights w, bvec x) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, w, x);
#else
    return _mm256_dpbusd_epi32(sum, w, x);
#endif
  }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t) { return sum; }
};

using DotNibble = DotByte;

}  // namespace ouzel::OUZEL_ISA
