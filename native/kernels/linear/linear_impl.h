// Matrix product with row-major weights in dot form: sixteen lanes of partial sums for each result, k ascending in steps of
// sixteen. Two ways with the same bits:
//   direct  few rows: weights are decoded in registers as they stream from memory;
//   packed  many rows: a block of weight rows is decoded once into scratch, blocks of rows of x are copied beside it, and
//           register tiles run over both, split along k so that they stay in the first cache. The lanes of a split tile
//           rest in scratch as they are, so a split changes no bit.
#pragma once

#include "kernels/elementwise/elementwise_impl.h"
#include "kernels/linear/linear_tiles.h"
#include "kernels/stored/stored.h"

namespace ouzel::OUZEL_ISA {

inline constexpr int64_t kDirectRows = 8;      // up to here weights are decoded in registers
inline constexpr int64_t kSplit = 32;          // steps of sixteen k that a tile takes at once
inline constexpr int64_t kMaxColumns = 96;     // weight rows in a block
inline constexpr int64_t kMinColumns = 48;
inline constexpr int64_t kMaxRows = 96;        // rows of x in a block
inline constexpr int64_t kMinRows = 24;
inline constexpr int64_t kBlockFloats = 98304;  // wanted size of either block (384 KiB)

OUZEL_INLINE int64_t round_up(int64_t a, int64_t to) { return (a + to - 1) / to * to; }
OUZEL_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
OUZEL_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Sizes of the packed blocks; they depend on k alone.
struct LinearBlocks {
  int64_t steps;    // of sixteen k
  int64_t columns;  // weight rows in a block, a multiple of kTileColumns
  int64_t rows;     // rows of x in a block, a multiple of kTileRows

  explicit LinearBlocks(int64_t k) {
    steps = (k + 15) / 16;
    const int64_t fit = kBlockFloats / larger(steps * 16, 16);
    columns = larger(kMinColumns, smaller(kMaxColumns, fit / kTileColumns * kTileColumns));
    rows = larger(kMinRows, smaller(kMaxRows, fit / kTileRows * kTileRows));
  }
  int64_t weight_floats() const { return columns * steps * 16; }
  int64_t row_floats() const { return rows * steps * 16; }
  int64_t lane_floats() const { return round_up(rows * kTileColumns, 16) * 16; }
  int64_t sum_floats() const { return larger(rows, kDirectRows) * columns + 16; }
};

static int64_t linear_columns(int64_t k) { return LinearBlocks(k).columns; }

static int64_t linear_scratch(int64_t k) {
  const LinearBlocks blocks(k);
  return blocks.weight_floats() + blocks.row_floats() + blocks.lane_floats() + blocks.sum_floats();
}

// Results of rows [m0, m0 + rows) and columns [n, n + count) from their sums.
struct LinearFinish {
  const LinearArgs& a;
  int64_t m0, rows, n, count;
  const float* sums;
  int64_t stride;

  template <Activation A>
  void run() const {
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t j = 0; j < count; j += 16) finish<A>(m0 + m, n + j, sums + m * stride + j, smaller(16, count - j));
  }

  template <Activation A>
  void finish(int64_t m, int64_t column, const float* from, int64_t left) const {
    f32x16 v = load_first(from, left);
    if (a.bias) v = add(v, load_first(a.bias + column, left));
    v = activation<A>(v);
    if (a.residual) v = add(v, load_first(a.residual + m * a.residual_stride + column, left));
    store_first(a.y + m * a.y_stride + column, v, left);
  }
};

struct LinearDirect {
  const LinearArgs& a;
  int64_t n, count;
  float* sums;  // [rows][count]

  template <WeightType T>
  void run() const {
    for (int64_t m = 0; m < a.rows;) {
      const int64_t left = a.rows - m;
      if (left >= 4) {
        columns<T, 4>(m);
        m += 4;
      } else if (left == 3) {
        columns<T, 3>(m);
        m += 3;
      } else if (left == 2) {
        columns<T, 2>(m);
        m += 2;
      } else {
        columns<T, 1>(m);
        m += 1;
      }
    }
  }

  template <WeightType T, int MR>
  void columns(int64_t m) const {
    constexpr int NR = direct_columns(MR);
    const float* x = a.x + m * a.x_stride;
    const auto* w = static_cast<const Element<T>*>(a.w) + n * a.k;
    int64_t j = 0;
    for (; j + NR <= count; j += NR)
      direct_tile<T, MR, NR>(x, a.x_stride, w + j * a.k, a.k, sums + m * count + j, count);
    for (; j < count; ++j) direct_tile<T, MR, 1>(x, a.x_stride, w + j * a.k, a.k, sums + m * count + j, count);
  }
};

// Weight rows [n, n + count) to float32: groups of kTileColumns rows, interleaved by steps of sixteen; absent rows are zero.
struct LinearPackWeights {
  const LinearArgs& a;
  int64_t n, count, steps;
  float* packed;

  template <WeightType T>
  void run() const {
    for (int64_t j = 0; j < round_up(count, kTileColumns); ++j) {
      float* to = packed + (j / kTileColumns * steps * kTileColumns + j % kTileColumns) * 16;
      const auto* from = static_cast<const Element<T>*>(a.w) + (n + j) * a.k;
      for (int64_t s = 0; s < steps; ++s) {
        const f32x16 v = j < count ? load_stored_first<T>(from + s * 16, a.k - s * 16) : zero();
        store(to + s * kTileColumns * 16, v);
      }
    }
  }
};

// Rows [m0, m0 + rows) of x: for each split along k, tiles of kTileRows rows, interleaved by steps of sixteen.
OUZEL_INLINE void pack_rows(const LinearArgs& a, int64_t m0, int64_t rows, int64_t steps, float* packed) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t s0 = 0; s0 < steps; s0 += kSplit) {
    const int64_t part = smaller(kSplit, steps - s0);
    float* base = packed + s0 * tiles * kTileRows * 16;
    for (int64_t m = 0; m < tiles * kTileRows; ++m) {
      float* to = base + (m / kTileRows * part * kTileRows + m % kTileRows) * 16;
      const float* from = a.x + (m0 + m) * a.x_stride + s0 * 16;
      for (int64_t s = 0; s < part; ++s) {
        const f32x16 v = m < rows ? load_first(from + s * 16, a.k - (s0 + s) * 16) : zero();
        store(to + s * kTileRows * 16, v);
      }
    }
  }
}

// One group of weight rows against every tile of a block of rows: sums[m * stride + j] for j < width.
OUZEL_INLINE void multiply_group(const float* x, const float* w, int64_t tiles, int64_t steps, float* lanes) {
  constexpr int64_t kTile = kTileRows * kTileColumns * 16;
  for (int64_t s0 = 0; s0 < steps; s0 += kSplit) {
    const int64_t part = smaller(kSplit, steps - s0);
    const float* xs = x + s0 * tiles * kTileRows * 16;
    for (int64_t t = 0; t < tiles; ++t)
      packed_tile(xs + t * part * kTileRows * 16, w + s0 * kTileColumns * 16, part, s0 == 0, lanes + t * kTile);
  }
}

// The trees of a group's lanes, and the sums to their places.
OUZEL_INLINE void reduce_group(const float* lanes, int64_t rows, int64_t width, float* out, int64_t stride) {
  alignas(64) float some[16];
  const int64_t total = rows * kTileColumns;
  for (int64_t i = 0; i < total; i += 16) {
    store(some, trees<AddLanes>(lanes + i * 16));
    for (int64_t e = i; e < smaller(i + 16, total); ++e)
      if (e % kTileColumns < width) out[e / kTileColumns * stride + e % kTileColumns] = some[e - i];
  }
}

static void linear_packed(const LinearArgs& a, const LinearBlocks& blocks, int64_t n, int64_t count) {
  float* weights = a.scratch;
  float* rows_packed = weights + blocks.weight_floats();
  float* lanes = rows_packed + blocks.row_floats();
  float* results = lanes + blocks.lane_floats();
  with_type(a.type, LinearPackWeights{a, n, count, blocks.steps, weights});
  for (int64_t m0 = 0; m0 < a.rows; m0 += blocks.rows) {
    const int64_t rows = smaller(blocks.rows, a.rows - m0);
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    pack_rows(a, m0, rows, blocks.steps, rows_packed);
    for (int64_t j = 0; j < count; j += kTileColumns) {
      multiply_group(rows_packed, weights + j * blocks.steps * 16, tiles, blocks.steps, lanes);
      reduce_group(lanes, rows, smaller(kTileColumns, count - j), results + j, blocks.columns);
    }
    with_activation(a.act, LinearFinish{a, m0, rows, n, count, results, blocks.columns});
  }
}

static void linear_direct(const LinearArgs& a, int64_t n, int64_t count) {
  with_type(a.type, LinearDirect{a, n, count, a.scratch});
  with_activation(a.act, LinearFinish{a, 0, a.rows, n, count, a.scratch, count});
}

static void linear(const LinearArgs& a) {
  const LinearBlocks blocks(a.k);
  for (int64_t n = a.n0; n < a.n1; n += blocks.columns) {
    const int64_t count = smaller(blocks.columns, a.n1 - n);
    if (a.rows <= kDirectRows) {
      linear_direct(a, n, count);
    } else {
      linear_packed(a, blocks, n, count);
    }
  }
}

}  // namespace ouzel::OUZEL_ISA
