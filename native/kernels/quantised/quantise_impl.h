// Rows of float32 as signed codes of eight bits in groups of 32, with what the matrix product needs beside them.
#pragma once

#include "kernels/quantised/packed.h"

namespace ouzel::OUZEL_ISA {

// Rows in a tile: the register tile of the matrix product.
inline constexpr int kQuantRows = kRegisters >= 32 ? 6 : kVec == 16 ? 2 : 4;

static int64_t quantise_unit() { return kQuantRows; }

// One group: a / 127 with a the largest magnitude, and x * (127 / a) to the nearest, ties to even. Adding 1.5 * 2^23 leaves
// the rounded number in the low bits. A group whose a is so small that 127 / a is infinite counts as zero; one that
// holds a number that is not finite has NaN for its scale, so that nobody takes its result for a number.
struct QuantisedGroup {
  alignas(64) int8_t codes[kGroup];
  float scale;
  int32_t sum;

  OUZEL_INLINE QuantisedGroup from(const f32x16& low, const f32x16& high) {
    QuantisedGroup r;
    const f32x16 most = max(max(low, negate(low)), max(high, negate(high)));
    const f32x16 nothing = add(mul(low, zero()), mul(high, zero()));
    const float largest = tree<MaxLanes>(most.part), finite = tree<AddLanes>(nothing.part);
    const float inverse = 127.0f / largest;
    r.sum = 0;
    if (finite != 0.0f || !(inverse <= 3.4028235e38f)) {
      memset(r.codes, 0, sizeof(r.codes));
      r.scale = finite != 0.0f ? __builtin_nanf("") : 0.0f;
      return r;
    }
    r.scale = largest / 127.0f;
    alignas(64) float shifted[kGroup];
    store(shifted, fma_free(low, inverse));
    store(shifted + 16, fma_free(high, inverse));
    alignas(64) int32_t bits[kGroup];
    memcpy(bits, shifted, sizeof(bits));
    for (int i = 0; i < kGroup; ++i) r.codes[i] = static_cast<int8_t>(bits[i]);
    for (int i = 0; i < kGroup; ++i) r.sum += bits[i] - kShifter;
    return r;
  }

 private:
  static constexpr int32_t kShifter = 0x4b400000;
  OUZEL_INLINE f32x16 fma_free(const f32x16& x, float inverse) { return add(mul(x, set(inverse)), set(12582912.0f)); }
};

// One row of a tile of `width` rows.
OUZEL_INLINE void quantise_row(const float* x, int64_t k, int64_t width, float* to) {
  for (int64_t at = 0; at < k; at += kGroup, to += kQuantFloats * width) {
    const QuantisedGroup group = QuantisedGroup::from(load_first(x + at, larger(0, k - at)),
                                                      load_first(x + at + 16, larger(0, k - at - 16)));
    for (int j = 0; j < kSteps; ++j) memcpy(to + j * width, group.codes + 4 * j, 4);
    const int32_t nibble_start = -8 * group.sum, byte_start = -128 * group.sum;
    to[8 * width] = group.scale;
    memcpy(to + 9 * width, &nibble_start, 4);
    memcpy(to + 10 * width, &byte_start, 4);
    to[11 * width] = static_cast<float>(group.sum);
  }
}

static void quantise(const QuantiseArgs& a) {
  const int64_t row_floats = (a.k + kGroup - 1) / kGroup * kQuantFloats;
  for (int64_t m = 0; m < a.rows; ++m) {
    const int64_t tile = m / kQuantRows * kQuantRows;
    const int64_t width = smaller(kQuantRows, a.rows - tile);
    quantise_row(a.x + m * a.x_stride, a.k, width, a.y + tile * row_floats + (m - tile));
  }
}

}  // namespace ouzel::OUZEL_ISA
