// Dot products of four bytes in 512-bit registers without VNNI; see dot.h. Needs AVX-512 BW.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/dot_avx512_bytes.h"

namespace ouzel::OUZEL_ISA {

// The weight's sign goes over to the code, so that the unsigned operand is at most 128 and a pair of products at most
// 2 * 128 * 127 = 32512: the sixteen-bit sum of the multiplication never saturates.
struct DotByte {
  static constexpr bool kFolded = false;
  struct Weights {
    bvec size;
    __mmask64 negative;
  };
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) {
    const bvec centred = _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80)));
    return {_mm512_abs_epi8(centred), _mm512_movepi8_mask(centred)};
  }
  [[gnu::always_inline]] static inline Sum begin(int32_t) { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, const Weights& w, bvec x) {
    const bvec turned = _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(w.size, turned), _mm512_set1_epi16(1)));
  }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t) { return sum; }
};

// Sixteen-bit sums of a whole group: at most 8 * 2 * 15 * 127 = 30480.
struct DotNibble {
  using Weights = bvec;
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) { return w; }
  [[gnu::always_inline]] static inline Sum begin(int32_t) { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, Weights w, bvec x) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(w, x));
  }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t start) {
    return _mm512_add_epi32(_mm512_madd_epi16(sum, _mm512_set1_epi16(1)), _mm512_set1_epi32(start));
  }
};

}  // namespace ouzel::OUZEL_ISA
