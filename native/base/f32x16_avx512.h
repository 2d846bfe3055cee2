// f32x16 as one 512-bit register. Needs AVX-512 F, BW, VL and DQ.
#pragma once

#include <immintrin.h>

#include <cstdint>

// GCC 12 takes the deliberately undefined operand inside its own AVX-512 intrinsics for a mistake (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace ouzel::OUZEL_ISA {

using vec = __m512;
inline constexpr int kVec = 16;
inline constexpr int kRegisters = 32;

[[gnu::always_inline]] static inline vec load_vec(const float* p) { return _mm512_loadu_ps(p); }
[[gnu::always_inline]] static inline void store_vec(float* p, vec a) { _mm512_storeu_ps(p, a); }
[[gnu::always_inline]] static inline vec set_vec(float a) { return _mm512_set1_ps(a); }
[[gnu::always_inline]] static inline vec add(vec a, vec b) { return _mm512_add_ps(a, b); }
[[gnu::always_inline]] static inline vec sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
[[gnu::always_inline]] static inline vec mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
[[gnu::always_inline]] static inline vec div(vec a, vec b) { return _mm512_div_ps(a, b); }
[[gnu::always_inline]] static inline vec max(vec a, vec b) { return _mm512_max_ps(a, b); }
[[gnu::always_inline]] static inline vec min(vec a, vec b) { return _mm512_min_ps(a, b); }
[[gnu::always_inline]] static inline vec fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }

[[gnu::always_inline]] static inline vec select_less(vec a, vec b, vec x, vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

[[gnu::always_inline]] static inline vec to_exponent(vec a) {
  const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(a), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3f800000)));
}

[[gnu::always_inline]] static inline vec load_vec_bf16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

[[gnu::always_inline]] static inline vec load_vec_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

[[gnu::always_inline]] static inline vec load_vec_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

[[gnu::always_inline]] static inline void store_vec_f16(uint16_t* p, vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

template <class Join>
[[gnu::always_inline]] static inline float tree(const vec* a) {
  vec v = Join::join(a[0], _mm512_shuffle_f32x4(a[0], a[0], 0x4e));
  v = Join::join(v, _mm512_shuffle_f32x4(v, v, 0xb1));
  v = Join::join(v, _mm512_permute_ps(v, 0x4e));
  v = Join::join(v, _mm512_permute_ps(v, 0xb1));
  return _mm512_cvtss_f32(v);
}

// One level of the tree for two or more vectors at once: their first and second halves, quarters ... are brought side by
// side and joined. After four levels one register holds sixteen results.
template <class Join>
[[gnu::always_inline]] static inline vec join_eights(vec a, vec b) {
  return Join::join(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
template <class Join>
[[gnu::always_inline]] static inline vec join_fours(vec a, vec b) {
  return Join::join(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
template <class Join>
[[gnu::always_inline]] static inline vec join_twos(vec a, vec b) {
  return Join::join(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}
template <class Join>
[[gnu::always_inline]] static inline vec join_ones(vec a, vec b) {
  return Join::join(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

template <class Join>
[[gnu::always_inline]] static inline void tree16(const float* v, vec* out) {
  vec fours[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const float* p = v + i * 16;
    const vec low = join_eights<Join>(load_vec(p), load_vec(p + 4 * 16));
    const vec high = join_eights<Join>(load_vec(p + 8 * 16), load_vec(p + 12 * 16));
    fours[i] = join_fours<Join>(low, high);
  }
  out[0] = join_ones<Join>(join_twos<Join>(fours[0], fours[1]), join_twos<Join>(fours[2], fours[3]));
}

}  // namespace ouzel::OUZEL_ISA
