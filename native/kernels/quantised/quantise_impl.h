// Rows of float32 as signed codes of eight bits in groups of 32, with what the matrix product needs beside them.
#pragma once

#include "kernels/quantised/packed.h"

namespace ouzel::OUZEL_ISA {

// Rows in a tile: the register tile of the matrix product. Few rows make one tile, so that weights pass by once.
inline constexpr int kManyRows = kRegisters >= 32 ? 6 : kVec == 16 ? 2 : 4;
inline constexpr int kFewRows = kRegisters >= 32 && kVec == 16 ? 12 : kManyRows;

static int64_t quantise_unit(int64_t rows) { return rows <= kFewRows ? kFewRows : kManyRows; }

inline constexpr int kBatch = 16;  // groups of a row taken together: their reductions fill a vector

// Up to kBatch groups of one row. Adding 1.5 * 2^23 leaves a rounded number in the low bits.
struct QuantiseBatch {
  const float* x;
  int64_t k;       // columns left in the row
  int64_t groups;  // in this batch
  alignas(64) float lanes[kBatch * 16] = {};
  alignas(64) float inverse[kBatch], scale[kBatch], sum[kBatch];
  alignas(64) int8_t codes[kBatch][kGroup];

  QuantiseBatch(const float* from, int64_t columns, int64_t count) : x(from), k(columns), groups(count) {}

  OUZEL_INLINE f32x16 load_half(const float* x, int64_t k, int64_t at) { return load_first(x + at, larger(0, k - at)); }

  void run() {
    for (int64_t g = 0; g < groups; ++g) {
      const f32x16 low = load_half(x, k, g * kGroup), high = load_half(x, k, g * kGroup + 16);
      store(lanes + g * 16, max(max(low, negate(low)), max(high, negate(high))));
    }
    const f32x16 largest = trees<MaxLanes>(lanes);
    store(inverse, div(set(127.0f), largest));
    store(scale, div(largest, set(127.0f)));
    for (int64_t g = 0; g < groups; ++g) round_group(g);
    store(sum, trees<AddLanes>(lanes));
    for (int64_t g = 0; g < groups; ++g)
      if (sum[g] * 0.0f != 0.0f) settle(g);
  }

  void round_group(int64_t g) {
    const f32x16 shifter = set(12582912.0f), factor = set(inverse[g]);
    const f32x16 low = add(mul(load_half(x, k, g * kGroup), factor), shifter);
    const f32x16 high = add(mul(load_half(x, k, g * kGroup + 16), factor), shifter);
    store(lanes + g * 16, add(sub(low, shifter), sub(high, shifter)));
    alignas(64) float shifted[kGroup];
    store(shifted, low);
    store(shifted + 16, high);
    alignas(64) int32_t bits[kGroup];
    memcpy(bits, shifted, sizeof(bits));
    for (int i = 0; i < kGroup; ++i) codes[g][i] = static_cast<int8_t>(bits[i]);
  }

  // The sum of a group is not finite when it holds a number that is not (infinity gives the factor zero), or when the factor
  // is infinite. The first has NaN for its scale, so that nobody takes its result for a number; the second counts as zero.
  void settle(int64_t g) {
    bool finite = true;
    for (int64_t i = g * kGroup; i < smaller(k, (g + 1) * kGroup); ++i) finite = finite && x[i] - x[i] == 0.0f;
    scale[g] = finite ? 0.0f : __builtin_nanf("");
    sum[g] = 0.0f;
    memset(codes[g], 0, sizeof(codes[g]));
  }

  // To a tile of `width` rows.
  void write(int64_t width, float* to) const {
    for (int64_t g = 0; g < groups; ++g, to += kQuantFloats * width) {
      OUZEL_UNROLL
      for (int j = 0; j < kSteps; ++j) memcpy(to + j * width, codes[g] + 4 * j, 4);
      const int32_t total = static_cast<int32_t>(sum[g]), nibble_start = -8 * total, byte_start = -128 * total;
      to[8 * width] = scale[g];
      memcpy(to + 9 * width, &nibble_start, 4);
      memcpy(to + 10 * width, &byte_start, 4);
      to[11 * width] = sum[g];
    }
  }
};

// One row of a tile of `width` rows.
OUZEL_INLINE void quantise_row(const float* x, int64_t k, int64_t width, float* to) {
  const int64_t groups = (k + kGroup - 1) / kGroup;
  for (int64_t g = 0; g < groups; g += kBatch) {
    QuantiseBatch batch(x + g * kGroup, k - g * kGroup, smaller(kBatch, groups - g));
    batch.run();
    batch.write(width, to + g * kQuantFloats * width);
  }
}

static void quantise(const QuantiseArgs& a) {
  const int64_t row_floats = (a.k + kGroup - 1) / kGroup * kQuantFloats;
  for (int64_t m = 0; m < a.rows; ++m) {
    const int64_t tile = m / a.unit * a.unit;
    const int64_t width = smaller(a.unit, a.rows - tile);
    quantise_row(a.x + m * a.x_stride, a.k, width, a.y + tile * row_floats + (m - tile));
  }
}

}  // namespace ouzel::OUZEL_ISA
