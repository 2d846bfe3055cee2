// f32x16 as two 256-bit registers. Needs AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ouzel::OUZEL_ISA {

using vec = __m256;
inline constexpr int kVec = 8;
inline constexpr int kRegisters = 16;

[[gnu::always_inline]] static inline vec load_vec(const float* p) { return _mm256_loadu_ps(p); }
[[gnu::always_inline]] static inline void store_vec(float* p, vec a) { _mm256_storeu_ps(p, a); }
[[gnu::always_inline]] static inline vec set_vec(float a) { return _mm256_set1_ps(a); }
[[gnu::always_inline]] static inline vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
[[gnu::always_inline]] static inline vec sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
[[gnu::always_inline]] static inline vec mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
[[gnu::always_inline]] static inline vec div(vec a, vec b) { return _mm256_div_ps(a, b); }
[[gnu::always_inline]] static inline vec max(vec a, vec b) { return _mm256_max_ps(a, b); }
[[gnu::always_inline]] static inline vec min(vec a, vec b) { return _mm256_min_ps(a, b); }
[[gnu::always_inline]] static inline vec fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }

[[gnu::always_inline]] static inline vec select_less(vec a, vec b, vec x, vec y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

[[gnu::always_inline]] static inline vec to_exponent(vec a) {
  const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(a), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3f800000)));
}

[[gnu::always_inline]] static inline vec load_vec_bf16(const uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

[[gnu::always_inline]] static inline vec load_vec_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

[[gnu::always_inline]] static inline vec load_vec_i8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

[[gnu::always_inline]] static inline void store_vec_f16(uint16_t* p, vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

template <class Join>
[[gnu::always_inline]] static inline float tree(const vec* a) {
  vec v = Join::join(a[0], a[1]);
  v = Join::join(v, _mm256_permute2f128_ps(v, v, 0x01));
  v = Join::join(v, _mm256_permute_ps(v, 0x4e));
  v = Join::join(v, _mm256_permute_ps(v, 0xb1));
  return _mm256_cvtss_f32(v);
}

// Vectors a and b, each joined to four lanes: [a | b].
template <class Join>
[[gnu::always_inline]] static inline vec join_fours(const float* a, const float* b) {
  const vec x = Join::join(load_vec(a), load_vec(a + 8));
  const vec y = Join::join(load_vec(b), load_vec(b + 8));
  return Join::join(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
}
template <class Join>
[[gnu::always_inline]] static inline vec join_twos(vec a, vec b) {
  return Join::join(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
template <class Join>
[[gnu::always_inline]] static inline vec join_ones(vec a, vec b) {
  return Join::join(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

template <class Join>
[[gnu::always_inline]] static inline void tree16(const float* v, vec* out) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const float* p = v + half * 8 * 16;
    vec fours[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) fours[i] = join_fours<Join>(p + i * 16, p + (i + 4) * 16);
    out[half] = join_ones<Join>(join_twos<Join>(fours[0], fours[1]), join_twos<Join>(fours[2], fours[3]));
  }
}

}  // namespace ouzel::OUZEL_ISA
