// Matrix product with row-major weights in dot form: sixteen lanes of partial sums for each result, k ascending in steps
// of sixteen. Two ways with the same bits:
//   direct  few rows: weights are decoded in registers as they stream from memory;
//   packed  many rows: a block of weight rows is decoded once into scratch, interleaved, and register tiles run over it
//           and over blocks of rows of x, split along k so that the weights of a tile stay in the first cache and the
//           rows in the second. The lanes of a split tile rest in scratch as they are, so a split changes no bit.
#pragma once

#include "kernels/elementwise/elementwise_impl.h"
#include "kernels/linear/linear_tiles.h"
#include "kernels/stored/stored.h"

namespace ouzel::OUZEL_ISA {

inline constexpr int64_t kDirectRows = kRegisters >= 32 && kParts == 1 ? 24 : 4;  // weights decoded in registers
inline constexpr int64_t kSplit = kParts == 1 && kRegisters >= 32 ? 64 : 32;  // steps of 16 k a tile takes at once
inline constexpr int64_t kPieceColumns = 48;      // enough to use a block of x several times, few enough to share out
inline constexpr int64_t kMaxColumns = 96;        // weight rows in a block
inline constexpr int64_t kMaxRows = 32;           // rows of x in a block
inline constexpr int64_t kMinRows = 16;
inline constexpr int64_t kWeightFloats = 393216;  // wanted size of a block of weights (1.5 MiB)
inline constexpr int64_t kRowFloats = 131072;     // and of the block of x that is used again and again (512 KiB)

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
    const int64_t width = larger(steps * 16, 16);
    columns = larger(kPieceColumns, smaller(kMaxColumns, kWeightFloats / width / kTileColumns * kTileColumns));
    rows = larger(kMinRows, smaller(kMaxRows, kRowFloats / width / kTileRows * kTileRows));
  }
  int64_t weight_floats() const { return columns * steps * 16; }
  int64_t tail_floats() const { return rows * 16; }
  int64_t lane_floats() const { return round_up(rows * kTileColumns, 16) * 16; }
  int64_t dense_floats() const { return round_up(rows * kTileColumns, 16); }
  int64_t sum_floats() const { return larger(rows, kDirectRows) * columns; }
};

static int64_t linear_columns(int64_t) { return kPieceColumns; }

static int64_t linear_scratch(int64_t k) {
  const LinearBlocks blocks(k);
  return blocks.weight_floats() + blocks.tail_floats() + blocks.lane_floats() + blocks.dense_floats() +
         blocks.sum_floats();
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
    int64_t m = 0;
    for (; m + 4 <= a.rows; m += 4) columns<T, 4>(m);
    if (a.rows - m == 3) columns<T, 3>(m);
    if (a.rows - m == 2) columns<T, 2>(m);
    if (a.rows - m == 1) columns<T, 1>(m);
  }

  template <WeightType T, int MR>
  void columns(int64_t m) const {
    constexpr int NR = direct_columns(MR);
    const float* x = a.x + m * a.x_stride;
    const auto* w = static_cast<const Element<T>*>(a.w) + n * a.k;
    float* to = sums + m * count;
    const int64_t tiles = count / NR;
    const int64_t pitch = MR == 1 ? tiles : 1, step = MR == 1 ? 1 : NR;
    for (int64_t t = 0; t < tiles; ++t)
      direct_tile<T, MR, NR>(x, a.x_stride, w + t * step * a.k, a.k, pitch, to + t * step, count);
    for (int64_t j = tiles * NR; j < count; ++j)
      direct_tile<T, MR, 1>(x, a.x_stride, w + j * a.k, a.k, 1, to + j, count);
  }
};

// Up to kTileColumns weight rows from row n on to float32, interleaved by steps of sixteen; absent rows
// repeat the first, and their results are not used.
struct LinearPackGroup {
  const LinearArgs& a;
  int64_t n, count;
  float* packed;  // [steps][kTileColumns][16]

  template <WeightType T>
  void run() const {
    const int64_t whole = a.k / 16 * 16;
    for (int64_t j = 0; j < kTileColumns; ++j) {
      float* to = packed + j * 16;
      const auto* from = static_cast<const Element<T>*>(a.w) + (n + (j < count ? j : 0)) * a.k;
      for (int64_t at = 0; at < whole; at += 16, to += kTileColumns * 16) store(to, load_stored<T>(from + at));
      if (whole < a.k) store(to, load_stored_first<T>(from + whole, a.k - whole));
    }
  }
};

// The last, partial sixteen of k of rows [m0, m0 + rows), filled up with zeros: tails [rows][16].
OUZEL_INLINE void copy_tails(const LinearArgs& a, int64_t m0, int64_t rows, float* tails) {
  const int64_t whole = a.k / 16 * 16;
  const float* x = a.x + m0 * a.x_stride + whole;
  for (int64_t m = 0; m < rows; ++m) store(tails + m * 16, load_first(x + m * a.x_stride, a.k - whole));
}

// The kTileRows rows of a tile that begins at row m of `rows`; past the end the last one again, whose results are unused.
struct TileRows {
  const float* row[kTileRows];

  TileRows(const float* base, int64_t stride, int64_t m, int64_t rows) {
    for (int64_t i = 0; i < kTileRows; ++i) row[i] = base + smaller(m + i, rows - 1) * stride;
  }
};

// One group of weight rows against rows [m0, m0 + rows), leaving lanes [rows up to a full tile][kTileColumns][16]. Each
// tile fetches one row of x that lies `ahead` rows further on; the groups of a block take turns, so that the next block is
// in the second cache when its first group comes.
OUZEL_INLINE void multiply_group(const LinearArgs& a, int64_t m0, int64_t rows, int64_t ahead, const float* w,
                                 const float* tails, float* lanes) {
  constexpr int64_t kRowLanes = kTileColumns * 16;
  const float* x = a.x + m0 * a.x_stride;
  const int64_t whole = a.k / 16;
  for (int64_t s0 = 0; s0 < whole; s0 += kSplit) {
    const int64_t part = smaller(kSplit, whole - s0);
    for (int64_t m = 0; m < rows; m += kTileRows) {
      const float* next = x + smaller(m + ahead, a.rows - m0 - 1) * a.x_stride + s0 * 16;
      packed_tile(TileRows(x, a.x_stride, m, rows).row, s0 * 16, w + s0 * kRowLanes, part, s0 == 0, next,
                  lanes + m * kRowLanes);
    }
  }
  if (whole * 16 == a.k) return;
  for (int64_t m = 0; m < rows; m += kTileRows)
    packed_tile(TileRows(tails, 16, m, rows).row, 0, w + whole * kRowLanes, 1, whole == 0, tails,
                lanes + m * kRowLanes);
}

// The trees of a group's lanes, then the sums to their places: out[m * stride + j] for j < width. `dense` holds the sums
// in between, as they come, [rows][kTileColumns].
OUZEL_INLINE void reduce_group(const float* lanes, int64_t rows, int64_t width, float* dense, float* out,
                               int64_t stride) {
  for (int64_t i = 0; i < rows * kTileColumns; i += 16) store(dense + i, trees<AddLanes>(lanes + i * 16));
  if (width == kTileColumns) {
    for (int64_t m = 0; m < rows; ++m) memcpy(out + m * stride, dense + m * kTileColumns, kTileColumns * sizeof(float));
    return;
  }
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t j = 0; j < width; ++j) out[m * stride + j] = dense[m * kTileColumns + j];
}

// With a single block of rows, each group of weight rows is decoded into the same small part of scratch; otherwise each
// has its own, and is decoded with the first block.
static void linear_packed(const LinearArgs& a, const LinearBlocks& blocks, int64_t n, int64_t count) {
  float* weights = a.scratch;
  float* tails = weights + blocks.weight_floats();
  float* lanes = tails + blocks.tail_floats();
  float* dense = lanes + blocks.lane_floats();
  float* results = dense + blocks.dense_floats();
  const bool once = a.rows <= blocks.rows;
  for (int64_t m0 = 0; m0 < a.rows; m0 += blocks.rows) {
    const int64_t rows = smaller(blocks.rows, a.rows - m0);
    copy_tails(a, m0, rows, tails);
    for (int64_t j = 0; j < count; j += kTileColumns) {
      const int64_t width = smaller(kTileColumns, count - j);
      float* group = once ? weights : weights + j * blocks.steps * 16;
      if (m0 == 0) with_type(a.type, LinearPackGroup{a, n + j, width, group});
      multiply_group(a, m0, rows, blocks.rows + j / kTileColumns % kTileRows, group, tails, lanes);
      reduce_group(lanes, rows, width, dense, results + j, blocks.columns);
    }
    with_activation(a.act, LinearFinish{a, m0, rows, n, count, results, blocks.columns});
  }
}

static void linear_direct(const LinearArgs& a, int64_t n, int64_t count) {
  with_type(a.type, LinearDirect{a, n, count, a.scratch});
  with_activation(a.act, LinearFinish{a, 0, a.rows, n, count, a.scratch, count});
}

// Few rows take as many columns at once as there is room for sums: the wider, the longer the streams of weights.
static void linear(const LinearArgs& a) {
  const LinearBlocks blocks(a.k);
  const bool direct = a.rows <= kDirectRows;
  const int64_t width = direct ? blocks.sum_floats() / larger(a.rows, 1) : blocks.columns;
  for (int64_t n = a.n0; n < a.n1; n += width) {
    const int64_t count = smaller(width, a.n1 - n);
    if (direct) {
      linear_direct(a, n, count);
    } else {
      linear_packed(a, blocks, n, count);
    }
  }
}

}  // namespace ouzel::OUZEL_ISA
