// Reading weights in their stored type as float32 lanes. All three conversions are exact.
#pragma once

#include "base/f32x16.h"
#include "kernels/kernels.h"

namespace ouzel::OUZEL_ISA {

template <WeightType>
struct Stored;

template <>
struct Stored<WeightType::f32> {
  using Element = float;
  OUZEL_INLINE vec load_part(const Element* p) { return load_vec(p); }
};

template <>
struct Stored<WeightType::bf16> {
  using Element = uint16_t;
  OUZEL_INLINE vec load_part(const Element* p) { return load_vec_bf16(p); }
};

template <>
struct Stored<WeightType::f16> {
  using Element = uint16_t;
  OUZEL_INLINE vec load_part(const Element* p) { return load_vec_f16(p); }
};

// Codes alone: of cached keys and values, whose scales are kept beside them.
template <>
struct Stored<WeightType::q8> {
  using Element = int8_t;
  OUZEL_INLINE vec load_part(const Element* p) { return load_vec_i8(p); }
};

template <WeightType T>
using Element = typename Stored<T>::Element;

template <WeightType T>
OUZEL_INLINE f32x16 load_stored(const Element<T>* p) {
  f32x16 r;
  OUZEL_UNROLL
  for (int i = 0; i < kParts; ++i) r.part[i] = Stored<T>::load_part(p + i * kVec);
  return r;
}

// The first n (0..16) elements, the others zero. Reads nothing past them.
template <WeightType T>
OUZEL_INLINE f32x16 load_stored_first(const Element<T>* p, int64_t n) {
  if (n >= 16) return load_stored<T>(p);
  alignas(64) Element<T> lanes[16] = {};
  memcpy(lanes, p, static_cast<size_t>(n) * sizeof(Element<T>));
  return load_stored<T>(lanes);
}

// Calls f.template run<T>() for the type given at run time.
template <class F>
OUZEL_INLINE void with_type(WeightType type, const F& f) {
  switch (type) {
    case WeightType::f32:
      return f.template run<WeightType::f32>();
    case WeightType::bf16:
      return f.template run<WeightType::bf16>();
    case WeightType::f16:
      return f.template run<WeightType::f16>();
    default:  // packed types have kernels of their own
      return;
  }
}

struct DecodeRow {
  const void* w;
  int64_t n;
  float* y;

  template <WeightType T>
  void run() const {
    const auto* p = static_cast<const Element<T>*>(w);
    for (int64_t i = 0; i < n; i += 16) store_first(y + i, load_stored_first<T>(p + i, n - i), n - i);
  }
};

static void decode_row(const void* w, WeightType type, int64_t n, float* y) { with_type(type, DecodeRow{w, n, y}); }

struct AxpyRow {
  float a;
  const void* w;
  int64_t n;
  float* y;

  template <WeightType T>
  void run() const {
    const auto* p = static_cast<const Element<T>*>(w);
    const f32x16 factor = set(a);
    for (int64_t i = 0; i < n; i += 16) {
      const f32x16 value = fma(factor, load_stored_first<T>(p + i, n - i), load_first(y + i, n - i));
      store_first(y + i, value, n - i);
    }
  }
};

static void axpy_row(float a, const void* w, WeightType type, int64_t n, float* y) {
  with_type(type, AxpyRow{a, w, n, y});
}

}  // namespace ouzel::OUZEL_ISA
