// Bytes in 256-bit registers: loads, nibbles, conversion.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ouzel::OUZEL_ISA {

using bvec = __m256i;
using ivec = __m256i;

[[gnu::always_inline]] static inline bvec load_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
[[gnu::always_inline]] static inline bvec low_nibbles(bvec a) { return _mm256_and_si256(a, _mm256_set1_epi8(0x0f)); }
[[gnu::always_inline]] static inline bvec high_nibbles(bvec a) {
  return _mm256_and_si256(_mm256_srli_epi16(a, 4), _mm256_set1_epi8(0x0f));
}
[[gnu::always_inline]] static inline bvec set_codes(const float* p) {
  int32_t four;
  memcpy(&four, p, sizeof(four));
  return _mm256_set1_epi32(four);
}
[[gnu::always_inline]] static inline vec int_to_float(ivec a) { return _mm256_cvtepi32_ps(a); }

}  // namespace ouzel::OUZEL_ISA
