// Bytes in 512-bit registers: loads, nibbles, conversion.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ouzel::OUZEL_ISA {

using bvec = __m512i;
using ivec = __m512i;

[[gnu::always_inline]] static inline bvec load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
[[gnu::always_inline]] static inline bvec low_nibbles(bvec a) { return _mm512_and_si512(a, _mm512_set1_epi8(0x0f)); }
[[gnu::always_inline]] static inline bvec high_nibbles(bvec a) {
  return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(0x0f));
}
[[gnu::always_inline]] static inline bvec set_codes(const float* p) {
  int32_t four;
  memcpy(&four, p, sizeof(four));
  return _mm512_set1_epi32(four);
}
[[gnu::always_inline]] static inline vec int_to_float(ivec a) { return _mm512_cvtepi32_ps(a); }

}  // namespace ouzel::OUZEL_ISA
