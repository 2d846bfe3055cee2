// Keys and values into the blocks of the cache, in its type.
#pragma once

#include "base/f32x16.h"
#include "kernels/attention/attention_impl.h"
#include "kernels/stored/stored.h"

namespace ouzel::OUZEL_ISA {

// One token's row of a head, sixteen columns at a time, as elements of the cache. `scale` is what q8 keeps beside them.
template <WeightType T>
struct StoredRow {
  float scale = 0, factor = 0;

  OUZEL_INLINE StoredRow of(const float*, int64_t) { return {}; }
  OUZEL_INLINE void convert(const StoredRow&, const f32x16& x, float* to) { store(to, x); }
};

template <>
struct StoredRow<WeightType::f16> {
  float scale = 0;

  OUZEL_INLINE StoredRow of(const float*, int64_t) { return {}; }
  OUZEL_INLINE void convert(const StoredRow&, const f32x16& x, uint16_t* to) {
    // max and min give their second operand for NaN: one stays one.
    const f32x16 kept = max(set(-65504.0f), min(set(65504.0f), x));
    OUZEL_UNROLL
    for (int i = 0; i < kParts; ++i) store_vec_f16(to + i * kVec, kept.part[i]);
  }
};

template <>
struct StoredRow<WeightType::q8> {
  float scale = 0, factor = 0;

  // As QuantiseArgs for one group as wide as the row.
  OUZEL_INLINE StoredRow of(const float* x, int64_t width) {
    f32x16 most = zero(), nothing = zero();
    for (int64_t j = 0; j < width; j += 16) {
      const f32x16 v = load_first(x + j, width - j);
      most = max(most, max(v, negate(v)));
      nothing = fma(v, zero(), nothing);
    }
    const float largest = tree<MaxLanes>(most.part), inverse = 127.0f / largest;
    if (sum(nothing) != 0.0f) return {__builtin_nanf(""), 0.0f};
    if (!(inverse <= 3.4028235e38f)) return {};
    return {largest / 127.0f, inverse};
  }
  OUZEL_INLINE void convert(const StoredRow& row, const f32x16& x, int8_t* to) {
    // The sum with 1.5 * 2^23 has the rounded code in its lowest bits.
    alignas(64) float shifted[16];
    store(shifted, add(mul(x, set(row.factor)), set(12582912.0f)));
    for (int i = 0; i < 16; ++i) {
      int32_t bits;
      memcpy(&bits, shifted + i, sizeof(bits));
      to[i] = row.factor == 0.0f ? int8_t{0} : static_cast<int8_t>(bits);
    }
  }
};

template <WeightType T>
OUZEL_INLINE void store_key(const StoreArgs& a, int64_t i) {
  const float* from = a.k + i * a.k_stride;
  auto* to = static_cast<Element<T>*>(a.k_block) + a.at + i;
  const auto row = StoredRow<T>::of(from, a.head_dim);
  for (int64_t d = 0; d < a.head_dim; d += 16) {
    alignas(64) Element<T> some[16];
    StoredRow<T>::convert(row, load_first(from + d, a.head_dim - d), some);
    const int64_t count = a.head_dim - d < 16 ? a.head_dim - d : 16;
    for (int64_t j = 0; j < count; ++j) to[(d + j) * kKeys] = some[j];
  }
  if constexpr (T == WeightType::q8) cache_scales(a.k_block, a.head_dim)[a.at + i] = row.scale;
}

// Whole vectors: the places between value_dim and its padding become zero.
template <WeightType T>
OUZEL_INLINE void store_value(const StoreArgs& a, int64_t i) {
  const int64_t pad = padded(a.value_dim);
  const float* from = a.v + i * a.v_stride;
  auto* to = static_cast<Element<T>*>(a.v_block) + (a.at + i) * pad;
  const auto row = StoredRow<T>::of(from, a.value_dim);
  for (int64_t j = 0; j < a.value_dim; j += 16) StoredRow<T>::convert(row, load_first(from + j, a.value_dim - j), to + j);
  if constexpr (T == WeightType::q8) cache_scales(a.v_block, pad)[a.at + i] = row.scale;
}

template <WeightType T>
static void store_as(const StoreArgs& a) {
  for (int64_t i = 0; i < a.count; ++i) {
    store_key<T>(a, i);
    store_value<T>(a, i);
  }
}

static void store_keys_values(const StoreArgs& a) {
  if (a.cache == WeightType::q8) return store_as<WeightType::q8>(a);
  if (a.cache == WeightType::f16) return store_as<WeightType::f16>(a);
  store_as<WeightType::f32>(a);
}

}  // namespace ouzel::OUZEL_ISA
