// f32x16 as an array, for any machine. The fused multiply-add is the library's fmaf: slow where the processor has none, but
// exact everywhere.
#pragma once

#include <cstdint>
#include <cstring>

namespace ouzel::OUZEL_ISA {

struct vec {
  float lane[16];
};
inline constexpr int kVec = 16;
inline constexpr int kRegisters = 16;

[[gnu::always_inline]] static inline vec load_vec(const float* p) {
  vec r;
  memcpy(r.lane, p, sizeof(r.lane));
  return r;
}
[[gnu::always_inline]] static inline void store_vec(float* p, const vec& a) { memcpy(p, a.lane, sizeof(a.lane)); }
[[gnu::always_inline]] static inline vec set_vec(float a) {
  vec r;
  for (float& lane : r.lane) lane = a;
  return r;
}

#define OUZEL_LANES(expression)                                 \
  vec r;                                                        \
  for (int i = 0; i < 16; ++i) r.lane[i] = expression;          \
  return r

[[gnu::always_inline]] static inline vec add(const vec& a, const vec& b) { OUZEL_LANES(a.lane[i] + b.lane[i]); }
[[gnu::always_inline]] static inline vec sub(const vec& a, const vec& b) { OUZEL_LANES(a.lane[i] - b.lane[i]); }
[[gnu::always_inline]] static inline vec mul(const vec& a, const vec& b) { OUZEL_LANES(a.lane[i] * b.lane[i]); }
[[gnu::always_inline]] static inline vec div(const vec& a, const vec& b) { OUZEL_LANES(a.lane[i] / b.lane[i]); }
[[gnu::always_inline]] static inline vec max(const vec& a, const vec& b) {
  OUZEL_LANES(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}
[[gnu::always_inline]] static inline vec min(const vec& a, const vec& b) {
  OUZEL_LANES(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}
[[gnu::always_inline]] static inline vec fma(const vec& a, const vec& b, const vec& c) {
  OUZEL_LANES(__builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]));
}
[[gnu::always_inline]] static inline vec select_less(const vec& a, const vec& b, const vec& x, const vec& y) {
  OUZEL_LANES(a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]);
}

#undef OUZEL_LANES

[[gnu::always_inline]] static inline vec to_exponent(const vec& a) {
  uint32_t bits[16];
  memcpy(bits, a.lane, sizeof(bits));
  for (uint32_t& b : bits) b = (b << 23) + 0x3f800000u;
  vec r;
  memcpy(r.lane, bits, sizeof(bits));
  return r;
}

[[gnu::always_inline]] static inline vec load_vec_bf16(const uint16_t* p) {
  uint32_t bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = static_cast<uint32_t>(p[i]) << 16;
  vec r;
  memcpy(r.lane, bits, sizeof(bits));
  return r;
}

// A half's magnitude, shifted to a float's fields and scaled by 2^112, is exact for normals and denormals alike.
[[gnu::always_inline]] static inline float from_half(uint16_t half) {
  uint32_t bits = static_cast<uint32_t>(half & 0x7fffu) << 13;
  float value;
  memcpy(&value, &bits, sizeof(value));
  value *= 0x1p112f;
  memcpy(&bits, &value, sizeof(bits));
  if ((half & 0x7c00u) == 0x7c00u) {  // infinite, or a NaN (made quiet)
    bits = 0x7f800000u | static_cast<uint32_t>(half & 0x3ffu) << 13;
    if ((half & 0x3ffu) != 0) bits |= 0x00400000u;
  }
  bits |= static_cast<uint32_t>(half & 0x8000u) << 16;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

[[gnu::always_inline]] static inline vec load_vec_f16(const uint16_t* p) {
  vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = from_half(p[i]);
  return r;
}

[[gnu::always_inline]] static inline vec load_vec_i8(const int8_t* p) {
  vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(p[i]);
  return r;
}

// To the nearest, ties to even, for magnitudes up to 65504. Adding 0.5 rounds what becomes denormal to the unit 2^-24 and
// leaves it in the low bits.
[[gnu::always_inline]] static inline uint16_t to_half(float a) {
  uint32_t bits;
  memcpy(&bits, &a, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
  if (bits < 0x38800000u) {
    float size;
    memcpy(&size, &bits, sizeof(size));
    size += 0.5f;
    memcpy(&bits, &size, sizeof(bits));
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  bits += 0xfffu + (bits >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((bits >> 13) - 0x1c000u));
}

[[gnu::always_inline]] static inline void store_vec_f16(uint16_t* p, const vec& a) {
  for (int i = 0; i < 16; ++i) p[i] = to_half(a.lane[i]);
}

template <class Join>
[[gnu::always_inline]] static inline float tree(const vec* a) {
  vec v = a[0];
  for (int step = 8; step > 0; step /= 2) {
    vec other = v;
    for (int i = 0; i < step; ++i) other.lane[i] = v.lane[i + step];
    v = Join::join(v, other);
  }
  return v.lane[0];
}

template <class Join>
[[gnu::always_inline]] static inline void tree16(const float* v, vec* out) {
  for (int j = 0; j < 16; ++j) {
    const vec one = load_vec(v + j * 16);
    out[0].lane[j] = tree<Join>(&one);
  }
}

}  // namespace ouzel::OUZEL_ISA
