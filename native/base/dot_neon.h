// Dot products of four bytes in 128-bit registers; see dot.h. Uses the instruction `sdot` where the file is compiled for
// it, else widening multiplications of baseline AArch64.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace ouzel::OUZEL_ISA {

using bvec = uint8x16_t;
using ivec = int32x4_t;

[[gnu::always_inline]] static inline bvec load_bytes(const uint8_t* p) { return vld1q_u8(p); }
[[gnu::always_inline]] static inline bvec low_nibbles(bvec a) { return vandq_u8(a, vdupq_n_u8(0x0f)); }
[[gnu::always_inline]] static inline bvec high_nibbles(bvec a) { return vshrq_n_u8(a, 4); }
[[gnu::always_inline]] static inline bvec set_codes(const float* p) {
  uint32_t four;
  memcpy(&four, p, sizeof(four));
  return vreinterpretq_u8_u32(vdupq_n_u32(four));
}
[[gnu::always_inline]] static inline vec int_to_float(ivec a) { return vcvtq_f32_s32(a); }

[[gnu::always_inline]] static inline ivec dot_signed(ivec sum, int8x16_t w, bvec codes) {
  const int8x16_t x = vreinterpretq_s8_u8(codes);
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, w, x);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(x)));
  return vaddq_s32(sum, vpaddq_s32(low, high));
#endif
}

struct DotByte {
  static constexpr bool kFolded = false;
  using Weights = int8x16_t;
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) {
    return vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(0x80)));
  }
  [[gnu::always_inline]] static inline Sum begin(int32_t) { return vdupq_n_s32(0); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, Weights w, bvec x) { return dot_signed(sum, w, x); }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t) { return sum; }
};

struct DotNibble {
  using Weights = int8x16_t;
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(bvec w) { return vreinterpretq_s8_u8(w); }
  [[gnu::always_inline]] static inline Sum begin(int32_t start) { return vdupq_n_s32(start); }
  [[gnu::always_inline]] static inline Sum step(Sum sum, Weights w, bvec x) { return dot_signed(sum, w, x); }
  [[gnu::always_inline]] static inline ivec end(Sum sum, int32_t) { return sum; }
};

}  // namespace ouzel::OUZEL_ISA
