// Dot products of four bytes in 256-bit registers; see dot.h. Needs AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/dot_avx2_bytes.h"

namespace ouzel::OUZEL_ISA {

// The weight's sign goes over to the code, so that the unsigned operand is at most 128 and a pair of products at most
// 2 * 128 * 127 = 32512: the sixteen-bit sum of the multiplication never saturates.
struct DotByte {
  static constexpr bool kFolded = false;
  struct Weights {
    bvec size, centred;
  };
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) {
    const bvec centred = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    return {_mm256_abs_epi8(centred), centred};
  }
  [[gnu::always_inline]] static inline Sum begin(int32_t) { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, const Weights& w, bvec x) {
    const bvec pairs = _mm256_maddubs_epi16(w.size, _mm256_sign_epi8(x, w.centred));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t) { return sum; }
};

// Sixteen-bit sums of a whole group: at most 8 * 2 * 15 * 127 = 30480.
struct DotNibble {
  using Weights = bvec;
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) { return w; }
  [[gnu::always_inline]] static inline Sum begin(int32_t) { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, Weights w, bvec x) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
  }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t start) {
    return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), _mm256_set1_epi32(start));
  }
};

}  // namespace ouzel::OUZEL_ISA
