// Dot products of four bytes on arrays; see dot.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace ouzel::OUZEL_ISA {

struct bvec {
  uint8_t byte[64];
};
struct ivec {
  int32_t lane[16];
};

[[gnu::always_inline]] static inline bvec load_bytes(const uint8_t* p) {
  bvec r;
  memcpy(r.byte, p, sizeof(r.byte));
  return r;
}
[[gnu::always_inline]] static inline bvec low_nibbles(bvec a) {
  for (uint8_t& byte : a.byte) byte &= 0x0f;
  return a;
}
[[gnu::always_inline]] static inline bvec high_nibbles(bvec a) {
  for (uint8_t& byte : a.byte) byte >>= 4;
  return a;
}
[[gnu::always_inline]] static inline bvec set_codes(const float* p) {
  bvec r;
  for (int i = 0; i < 64; i += 4) memcpy(r.byte + i, p, 4);
  return r;
}
[[gnu::always_inline]] static inline vec int_to_float(const ivec& a) {
  vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}

struct DotByte {
  static constexpr bool kFolded = true;
  using Weights = bvec;
  using Sum = ivec;
  [[gnu::always_inline]] static inline Weights prepare(const bvec& w) { return w; }
  [[gnu::always_inline]] static inline Sum begin(int32_t start) {
    Sum r;
    for (int32_t& lane : r.lane) lane = start;
    return r;
  }
  [[gnu::always_inline]] static inline Sum step(Sum sum, const Weights& w, const bvec& x) {
    for (int i = 0; i < 64; ++i) sum.lane[i / 4] += w.byte[i] * static_cast<int8_t>(x.byte[i]);
    return sum;
  }
  [[gnu::always_inline]] static inline ivec end(const Sum& sum, int32_t) { return sum; }
};

using DotNibble = DotByte;

}  // namespace ouzel::OUZEL_ISA
