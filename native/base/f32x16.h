// f32x16: sixteen float lanes on every machine. An ISA file defines OUZEL_ISA (its namespace) and includes one of the
// f32x16_<isa>.h headers, which gives the register type `vec` (kVec lanes) and its operations; this header builds the
// sixteen lanes of kParts registers on them.
//
// Everything is in the ISA's own namespace and forced inline: a symbol shared by two ISA files would let the linker give a
// baseline caller the wide copy. Every operation rounds once, as IEEE 754 says, so all ISAs give the same bits (NaN
// payloads and signs apart). The ISA files must be compiled with -ffp-contract=off.
#pragma once

#include <cstdint>
#include <cstring>

#define OUZEL_INLINE [[gnu::always_inline]] static inline
#define OUZEL_UNROLL _Pragma("GCC unroll 16")

namespace ouzel::OUZEL_ISA {

inline constexpr int kParts = 16 / kVec;

struct f32x16 {
  vec part[kParts];
};

OUZEL_INLINE f32x16 load(const float* p) {
  f32x16 r;
  OUZEL_UNROLL
  for (int i = 0; i < kParts; ++i) r.part[i] = load_vec(p + i * kVec);
  return r;
}

OUZEL_INLINE void store(float* p, const f32x16& a) {
  OUZEL_UNROLL
  for (int i = 0; i < kParts; ++i) store_vec(p + i * kVec, a.part[i]);
}

OUZEL_INLINE f32x16 set(float a) {
  f32x16 r;
  const vec v = set_vec(a);
  OUZEL_UNROLL
  for (int i = 0; i < kParts; ++i) r.part[i] = v;
  return r;
}

#define OUZEL_LANEWISE2(name)                                                            \
  OUZEL_INLINE f32x16 name(const f32x16& a, const f32x16& b) {                           \
    f32x16 r;                                                                            \
    OUZEL_UNROLL for (int i = 0; i < kParts; ++i) r.part[i] = name(a.part[i], b.part[i]); \
    return r;                                                                            \
  }
OUZEL_LANEWISE2(add)
OUZEL_LANEWISE2(sub)
OUZEL_LANEWISE2(mul)
OUZEL_LANEWISE2(div)
OUZEL_LANEWISE2(max)  // a > b ? a : b, so NaN and equal zeros give b
OUZEL_LANEWISE2(min)  // a < b ? a : b
#undef OUZEL_LANEWISE2

// a * b + c, rounded once.
OUZEL_INLINE f32x16 fma(const f32x16& a, const f32x16& b, const f32x16& c) {
  f32x16 r;
  OUZEL_UNROLL
  for (int i = 0; i < kParts; ++i) r.part[i] = fma(a.part[i], b.part[i], c.part[i]);
  return r;
}

// a < b ? x : y by lanes.
OUZEL_INLINE f32x16 select_less(const f32x16& a, const f32x16& b, const f32x16& x, const f32x16& y) {
  f32x16 r;
  OUZEL_UNROLL
  for (int i = 0; i < kParts; ++i) r.part[i] = select_less(a.part[i], b.part[i], x.part[i], y.part[i]);
  return r;
}

// The bits of each lane shifted left by 23, plus those of 1.0f.
OUZEL_INLINE f32x16 to_exponent(const f32x16& a) {
  f32x16 r;
  OUZEL_UNROLL
  for (int i = 0; i < kParts; ++i) r.part[i] = to_exponent(a.part[i]);
  return r;
}

OUZEL_INLINE f32x16 zero() { return set(0.0f); }
OUZEL_INLINE f32x16 negate(const f32x16& a) { return sub(zero(), a); }

// The first n (0..16) lanes from memory, the others zero. Reads nothing past them.
OUZEL_INLINE f32x16 load_first(const float* p, int64_t n) {
  if (n >= 16) return load(p);
  alignas(64) float lanes[16] = {};
  memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return load(lanes);
}

// Writes the first n (0..16) lanes.
OUZEL_INLINE void store_first(float* p, const f32x16& a, int64_t n) {
  if (n >= 16) return store(p, a);
  alignas(64) float lanes[16];
  store(lanes, a);
  memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

struct AddLanes {
  OUZEL_INLINE vec join(vec a, vec b) { return add(a, b); }
};
struct MaxLanes {
  OUZEL_INLINE vec join(vec a, vec b) { return max(a, b); }
};

// The fixed tree: lane i with lane i + 8, then i + 4, i + 2, i + 1.
OUZEL_INLINE float sum(const f32x16& a) { return tree<AddLanes>(a.part); }

// The tree of sixteen vectors that lie one after another; lane j of the result belongs to vector j.
template <class Join>
OUZEL_INLINE f32x16 trees(const float* vectors) {
  f32x16 r;
  tree16<Join>(vectors, r.part);
  return r;
}

// The sums of `count` vectors that lie one after another. Memory is read up to the next multiple of sixteen vectors.
OUZEL_INLINE void sums(const float* vectors, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(out + i, trees<AddLanes>(vectors + i * 16));
  if (count - i > 4) return store_first(out + i, trees<AddLanes>(vectors + i * 16), count - i);
  for (; i < count; ++i) out[i] = sum(load(vectors + i * 16));
}

}  // namespace ouzel::OUZEL_ISA
