// The register tiles of the matrix product.
#pragma once

#include "base/f32x16.h"
#include "kernels/stored/stored.h"

namespace ouzel::OUZEL_ISA {

// Packed tiles go over the kParts registers of the sixteen lanes one after another, so their accumulators are single
// registers: kTileRows * kTileColumns of them, a step of weights and one register of x must fit in the register file
// (32 with AVX-512 and NEON, 16 with AVX2).
inline constexpr int64_t kTileRows = 4;
inline constexpr int64_t kTileColumns = kRegisters >= 32 ? 6 : 3;

// Direct tiles keep all parts at once. Weight rows at a time for MR rows of x: one for a single row, because memory is then
// read as one stream, which the processor's own prefetching serves best (several weight rows at a time reached half of
// the bandwidth); as many as registers allow otherwise.
constexpr int direct_columns(int MR) {
  const int room = kRegisters / kParts;  // f32x16 values
  if (MR == 1) return 1;
  if (room >= 32) return MR == 2 ? 8 : 6;
  return MR * 2 <= room - 2 ? 2 : 1;
}

// Rows of x from x[i] + offset on, w [steps][kTileColumns][16]; lanes [kTileRows][kTileColumns][16] are set (first) or
// added to. `ahead` is a row that will be wanted soon: it is fetched into the second cache on the way.
OUZEL_INLINE void packed_tile(const float* const (&x)[kTileRows], int64_t offset, const float* w, int64_t steps, bool first,
                              const float* ahead, float* lanes) {
  for (int p = 0; p < kParts; ++p, offset += kVec, w += kVec, lanes += kVec) {
    const float* rows[kTileRows];
    OUZEL_UNROLL
    for (int i = 0; i < kTileRows; ++i) rows[i] = x[i] + offset;
    vec acc[kTileRows][kTileColumns];
    OUZEL_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      OUZEL_UNROLL
      for (int j = 0; j < kTileColumns; ++j)
        acc[i][j] = first ? set_vec(0.0f) : load_vec(lanes + (i * kTileColumns + j) * 16);
    }
    for (int64_t s = 0; s < steps; ++s) {
      __builtin_prefetch(ahead + s * 16, 0, 2);
      vec column[kTileColumns];
      OUZEL_UNROLL
      for (int j = 0; j < kTileColumns; ++j) column[j] = load_vec(w + (s * kTileColumns + j) * 16);
      OUZEL_UNROLL
      for (int i = 0; i < kTileRows; ++i) {
        const vec row = load_vec(rows[i] + s * 16);
        OUZEL_UNROLL
        for (int j = 0; j < kTileColumns; ++j) acc[i][j] = fma(row, column[j], acc[i][j]);
      }
    }
    OUZEL_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      OUZEL_UNROLL
      for (int j = 0; j < kTileColumns; ++j) store_vec(lanes + (i * kTileColumns + j) * 16, acc[i][j]);
    }
  }
}

// out[i * stride + j] for MR rows of x and NR weight rows, which lie k elements apart.
template <WeightType T, int MR, int NR>
[[gnu::noinline]] static void direct_tile(const float* x, int64_t x_stride, const Element<T>* w, int64_t k, float* out,
                                          int64_t stride) {
  f32x16 acc[MR][NR], column[NR];
  OUZEL_UNROLL
  for (int i = 0; i < MR; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) acc[i][j] = zero();
  }
  int64_t at = 0;
  for (; at + 16 <= k; at += 16) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) column[j] = load_stored<T>(w + j * k + at);
    OUZEL_UNROLL
    for (int i = 0; i < MR; ++i) {
      const f32x16 row = load(x + i * x_stride + at);
      OUZEL_UNROLL
      for (int j = 0; j < NR; ++j) acc[i][j] = fma(row, column[j], acc[i][j]);
    }
  }
  if (at < k) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) column[j] = load_stored_first<T>(w + j * k + at, k - at);
    OUZEL_UNROLL
    for (int i = 0; i < MR; ++i) {
      const f32x16 row = load_first(x + i * x_stride + at, k - at);
      OUZEL_UNROLL
      for (int j = 0; j < NR; ++j) acc[i][j] = fma(row, column[j], acc[i][j]);
    }
  }
  OUZEL_UNROLL
  for (int i = 0; i < MR; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) out[i * stride + j] = sum(acc[i][j]);
  }
}

}  // namespace ouzel::OUZEL_ISA
