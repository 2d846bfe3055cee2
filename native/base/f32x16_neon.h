// f32x16 as four 128-bit registers. Baseline AArch64.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace ouzel::OUZEL_ISA {

using vec = float32x4_t;
inline constexpr int kVec = 4;
inline constexpr int kRegisters = 32;

[[gnu::always_inline]] static inline vec load_vec(const float* p) { return vld1q_f32(p); }
[[gnu::always_inline]] static inline void store_vec(float* p, vec a) { vst1q_f32(p, a); }
[[gnu::always_inline]] static inline vec set_vec(float a) { return vdupq_n_f32(a); }
[[gnu::always_inline]] static inline vec add(vec a, vec b) { return vaddq_f32(a, b); }
[[gnu::always_inline]] static inline vec sub(vec a, vec b) { return vsubq_f32(a, b); }
[[gnu::always_inline]] static inline vec mul(vec a, vec b) { return vmulq_f32(a, b); }
[[gnu::always_inline]] static inline vec div(vec a, vec b) { return vdivq_f32(a, b); }
[[gnu::always_inline]] static inline vec fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }

// Not vmaxq / vminq: those treat NaN and signed zeros otherwise than the x86 instructions do.
[[gnu::always_inline]] static inline vec max(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
[[gnu::always_inline]] static inline vec min(vec a, vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }

[[gnu::always_inline]] static inline vec select_less(vec a, vec b, vec x, vec y) {
  return vbslq_f32(vcltq_f32(a, b), x, y);
}

[[gnu::always_inline]] static inline vec to_exponent(vec a) {
  const uint32x4_t bits = vshlq_n_u32(vreinterpretq_u32_f32(a), 23);
  return vreinterpretq_f32_u32(vaddq_u32(bits, vdupq_n_u32(0x3f800000)));
}

[[gnu::always_inline]] static inline vec load_vec_bf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

[[gnu::always_inline]] static inline vec load_vec_f16(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

template <class Join>
[[gnu::always_inline]] static inline vec join_to_four(vec a, vec b, vec c, vec d) {
  return Join::join(Join::join(a, c), Join::join(b, d));
}

// The last two levels for pairs of vectors: [a02 a13 b02 b13], then neighbours.
template <class Join>
[[gnu::always_inline]] static inline vec join_twos(vec a, vec b) {
  const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
  return Join::join(vreinterpretq_f32_f64(vzip1q_f64(x, y)), vreinterpretq_f32_f64(vzip2q_f64(x, y)));
}
template <class Join>
[[gnu::always_inline]] static inline vec join_ones(vec a, vec b) {
  return Join::join(vuzp1q_f32(a, b), vuzp2q_f32(a, b));
}

[[gnu::always_inline]] static inline vec load_vec_i8(const int8_t* p) {
  int8_t bytes[8] = {};
  __builtin_memcpy(bytes, p, 4);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(bytes)))));
}

[[gnu::always_inline]] static inline void store_vec_f16(uint16_t* p, vec a) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

template <class Join>
[[gnu::always_inline]] static inline float tree(const vec* a) {
  vec v = join_to_four<Join>(a[0], a[1], a[2], a[3]);
  v = join_twos<Join>(v, v);
  v = join_ones<Join>(v, v);
  return vgetq_lane_f32(v, 0);
}

template <class Join>
[[gnu::always_inline]] static inline vec load_to_four(const float* p) {
  return join_to_four<Join>(load_vec(p), load_vec(p + 4), load_vec(p + 8), load_vec(p + 12));
}

template <class Join>
[[gnu::always_inline]] static inline void tree16(const float* v, vec* out) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const float* p = v + i * 4 * 16;
    const vec low = join_twos<Join>(load_to_four<Join>(p), load_to_four<Join>(p + 16));
    const vec high = join_twos<Join>(load_to_four<Join>(p + 32), load_to_four<Join>(p + 48));
    out[i] = join_ones<Join>(low, high);
  }
}

}  // namespace ouzel::OUZEL_ISA
