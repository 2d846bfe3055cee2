// The register tiles of the matrix product.
#pragma once

#include "base/f32x16.h"
#include "kernels/stored/stored.h"

namespace ouzel::OUZEL_ISA {

// A packed tile is done in passes of kPassColumns columns and one of the kParts registers of the sixteen lanes, so that
// accumulators are single registers: kTileRows * kPassColumns of them, a step of weights and one register of x must fit
// in the register file (32 with AVX-512 and NEON, 16 with AVX2).
inline constexpr int64_t kTileRows = 4;
inline constexpr int64_t kTileColumns = 6;
inline constexpr int64_t kPassColumns = kRegisters >= 32 ? 6 : 3;

// Direct tiles keep all parts at once. Weight rows at a time for MR rows of x:
// one row of x waits for memory, so its weight rows lie far apart, each the head of a long stream that the processor
// fetches ahead by itself (neighbouring rows at a time reached half of the bandwidth);
// several rows of x take as many neighbouring weight rows as registers allow, and ask for the next ones in the order in
// which they lie.
constexpr int direct_columns(int MR) {
  const int room = kRegisters / kParts;  // f32x16 values
  if (MR == 1) return 4;
  if (room >= 32) return MR == 2 ? 8 : 6;
  return MR * 2 <= room - 2 ? 2 : 1;
}

// Rows of x, and columns w and lanes at steps of kTileColumns * 16 and 16. The lanes are set (first) or added to.
OUZEL_INLINE void packed_pass(const float* const (&x)[kTileRows], const float* w, int64_t steps, bool first,
                              const float* ahead, float* lanes) {
  vec acc[kTileRows][kPassColumns];
  OUZEL_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < kPassColumns; ++j)
      acc[i][j] = first ? set_vec(0.0f) : load_vec(lanes + (i * kTileColumns + j) * 16);
  }
  for (int64_t s = 0; s < steps; ++s) {
    __builtin_prefetch(ahead + s * 16, 0, 2);
    vec column[kPassColumns];
    OUZEL_UNROLL
    for (int j = 0; j < kPassColumns; ++j) column[j] = load_vec(w + (s * kTileColumns + j) * 16);
    OUZEL_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      const vec row = load_vec(x[i] + s * 16);
      OUZEL_UNROLL
      for (int j = 0; j < kPassColumns; ++j) acc[i][j] = fma(row, column[j], acc[i][j]);
    }
  }
  OUZEL_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < kPassColumns; ++j) store_vec(lanes + (i * kTileColumns + j) * 16, acc[i][j]);
  }
}

// Rows of x from x[i] + offset on, w [steps][kTileColumns][16]; lanes [kTileRows][kTileColumns][16] are set (first) or
// added to. `ahead` is a row that will be wanted soon: it is fetched into the second cache on the way.
OUZEL_INLINE void packed_tile(const float* const (&x)[kTileRows], int64_t offset, const float* w, int64_t steps,
                              bool first, const float* ahead, float* lanes) {
  for (int64_t c = 0; c < kTileColumns; c += kPassColumns) {
    for (int64_t p = 0; p < kParts; ++p) {
      const float* rows[kTileRows];
      OUZEL_UNROLL
      for (int i = 0; i < kTileRows; ++i) rows[i] = x[i] + offset + p * kVec;
      packed_pass(rows, w + c * 16 + p * kVec, steps, first, ahead, lanes + c * 16 + p * kVec);
    }
  }
}

// Asks for the next Bytes of memory to be brought into the second cache (into the first one, it took twice as long).
template <size_t Bytes>
OUZEL_INLINE void fetch_ahead(const char*& next) {
  OUZEL_UNROLL
  for (size_t b = 0; b < Bytes; b += 64) __builtin_prefetch(next + b, 0, 2);
  next += Bytes;
}

// out[i * stride + j * pitch] for MR rows of x and every pitch-th of NR * pitch weight rows of k elements.
template <WeightType T, int MR, int NR>
[[gnu::noinline]] static void direct_tile(const float* x, int64_t x_stride, const Element<T>* w, int64_t k,
                                          int64_t pitch, float* out, int64_t stride) {
  const int64_t apart = pitch * k;
  f32x16 acc[MR][NR], column[NR];
  OUZEL_UNROLL
  for (int i = 0; i < MR; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) acc[i][j] = zero();
  }
  const char* next = reinterpret_cast<const char*>(w + NR * k);
  int64_t at = 0;
  for (; at + 16 <= k; at += 16) {
    if constexpr (MR > 1) fetch_ahead<NR * 16 * sizeof(Element<T>)>(next);
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) column[j] = load_stored<T>(w + j * apart + at);
    OUZEL_UNROLL
    for (int i = 0; i < MR; ++i) {
      const f32x16 row = load(x + i * x_stride + at);
      OUZEL_UNROLL
      for (int j = 0; j < NR; ++j) acc[i][j] = fma(row, column[j], acc[i][j]);
    }
  }
  if (at < k) {
    OUZEL_UNROLL
    for (int j = 0; j < NR; ++j) column[j] = load_stored_first<T>(w + j * apart + at, k - at);
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
    for (int j = 0; j < NR; ++j) out[i * stride + j * pitch] = sum(acc[i][j]);
  }
}

}  // namespace ouzel::OUZEL_ISA
