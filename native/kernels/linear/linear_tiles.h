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

// Direct tiles keep all parts at once. Weight rows at a time for MR rows of x.
constexpr int direct_columns(int MR) {
  const int room = kRegisters / kParts;  // f32x16 values
  if (room >= 32) return MR <= 2 ? 8 : 6;
  if (MR == 1) return 4;
  return MR * 2 <= room - 2 ? 2 : 1;
}

// x [steps][kTileRows][16], w [steps][kTileColumns][16]; lanes [kTileRows][kTileColumns][16] are set (first) or added to.
OUZEL_INLINE void packed_tile(const float* x, const float* w, int64_t steps, bool first, float* lanes) {
  for (int p = 0; p < kParts; ++p, x += kVec, w += kVec, lanes += kVec) {
    vec acc[kTileRows][kTileColumns];
    OUZEL_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      OUZEL_UNROLL
      for (int j = 0; j < kTileColumns; ++j)
        acc[i][j] = first ? set_vec(0.0f) : load_vec(lanes + (i * kTileColumns + j) * 16);
    }
    for (int64_t s = 0; s < steps; ++s) {
      vec column[kTileColumns];
      OUZEL_UNROLL
      for (int j = 0; j < kTileColumns; ++j) column[j] = load_vec(w + (s * kTileColumns + j) * 16);
      OUZEL_UNROLL
      for (int i = 0; i < kTileRows; ++i) {
        const vec row = load_vec(x + (s * kTileRows + i) * 16);
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

template <int MR, int NR>
struct Accumulators {
  f32x16 acc[MR][NR];

  OUZEL_INLINE void clear(Accumulators& a) {
    OUZEL_UNROLL
    for (int i = 0; i < MR; ++i) {
      OUZEL_UNROLL
      for (int j = 0; j < NR; ++j) a.acc[i][j] = zero();
    }
  }
  OUZEL_INLINE void step(Accumulators& a, const f32x16 (&x)[MR], const f32x16 (&w)[NR]) {
    OUZEL_UNROLL
    for (int i = 0; i < MR; ++i) {
      OUZEL_UNROLL
      for (int j = 0; j < NR; ++j) a.acc[i][j] = fma(x[i], w[j], a.acc[i][j]);
    }
  }
};

// sums[i * stride + j] of MR rows of x and NR weight rows, which lie k elements apart.
template <WeightType T, int MR, int NR>
[[gnu::noinline]] static void direct_tile(const float* x, int64_t x_stride, const Element<T>* w, int64_t k, float* out,
                                          int64_t stride) {
  using Sums = Accumulators<MR, NR>;
  Sums a;
  Sums::clear(a);
  f32x16 row[MR], column[NR];
  int64_t at = 0;
  for (; at + 16 <= k; at += 16) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) column[j] = load_stored<T>(w + j * k + at);
    OUZEL_UNROLL
    for (int i = 0; i < MR; ++i) row[i] = load(x + i * x_stride + at);
    Sums::step(a, row, column);
  }
  if (at < k) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) column[j] = load_stored_first<T>(w + j * k + at, k - at);
    OUZEL_UNROLL
    for (int i = 0; i < MR; ++i) row[i] = load_first(x + i * x_stride + at, k - at);
    Sums::step(a, row, column);
  }
  OUZEL_UNROLL
  for (int i = 0; i < MR; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) out[i * stride + j] = sum(a.acc[i][j]);
  }
}

}  // namespace ouzel::OUZEL_ISA
