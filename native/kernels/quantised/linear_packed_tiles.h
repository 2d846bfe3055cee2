// The register tile of the matrix product with packed weights.
#pragma once

#include <type_traits>

#include "base/dot.h"
#include "kernels/quantised/packed.h"

namespace ouzel::OUZEL_ISA {

// The weights of one pass: kVec * N results for each row. The bytes of vector v of the pass lie v * `step` further on, its
// scales v * `scale_step`.
struct PackedPass {
  const uint8_t* bytes;
  const uint8_t* scales;
  int64_t step, scale_step;
};

// How far ahead of the arithmetic weights are asked from memory when they are read once.
inline constexpr int64_t kAheadBytes = 4096;

template <WeightType T>
using DotOf = std::conditional_t<Packed<T>::kNibbles, DotNibble, DotByte>;

// Sums of one group for R rows and N vectors.
template <WeightType T, int R, int N>
struct PackedGroup {
  using Dot = DotOf<T>;
  using Sum = typename Dot::Sum;
  Sum sum[R][N];

  OUZEL_INLINE int32_t start(const float* x, int row) {
    if constexpr (Packed<T>::kMinimum) return 0;
    return load_int(x + (Packed<T>::kNibbles ? 9 : 10) * R + row);
  }

  OUZEL_INLINE void run(PackedGroup& g, const float* x, const uint8_t* w, int64_t step) {
    OUZEL_UNROLL
    for (int i = 0; i < R; ++i) {
      OUZEL_UNROLL
      for (int v = 0; v < N; ++v) g.sum[i][v] = Dot::begin(start(x, i));
    }
    constexpr int kVectors = Packed<T>::kNibbles ? kSteps / 2 : kSteps;
    OUZEL_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      bvec bytes[N];
      OUZEL_UNROLL
      for (int v = 0; v < N; ++v) bytes[v] = load_bytes(w + j * 64 + v * step);
      if constexpr (Packed<T>::kNibbles) {
        bvec half[N];
        OUZEL_UNROLL
        for (int v = 0; v < N; ++v) half[v] = low_nibbles(bytes[v]);
        add_step(g, x + j * R, half);
        OUZEL_UNROLL
        for (int v = 0; v < N; ++v) half[v] = high_nibbles(bytes[v]);
        add_step(g, x + (4 + j) * R, half);
      } else {
        add_step(g, x + j * R, bytes);
      }
    }
  }

  OUZEL_INLINE void add_step(PackedGroup& g, const float* x, const bvec (&bytes)[N]) {
    typename Dot::Weights w[N];
    OUZEL_UNROLL
    for (int v = 0; v < N; ++v) w[v] = Dot::prepare(bytes[v]);
    OUZEL_UNROLL
    for (int i = 0; i < R; ++i) {
      const bvec codes = set_codes(x + i);
      OUZEL_UNROLL
      for (int v = 0; v < N; ++v) g.sum[i][v] = Dot::step(g.sum[i][v], w[v], codes);
    }
  }
};

OUZEL_INLINE vec load_scales(const uint8_t* p) {
  alignas(64) uint16_t halves[kVec];
  memcpy(halves, p, sizeof(halves));
  return load_vec_f16(halves);
}

// out[i * stride + v * kVec + lane] for the R rows of a quantised tile and N vectors of weights.
template <WeightType T, int R, int N, bool Ahead>
[[gnu::noinline]] static void packed_weights_tile(const float* x, int64_t groups, const PackedPass& pass, float* out,
                                                  int64_t stride) {
  using Group = PackedGroup<T, R, N>;
  vec acc[R][N];
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int v = 0; v < N; ++v) acc[i][v] = set_vec(0.0f);
  }
  const uint8_t *bytes = pass.bytes, *halves = pass.scales;
  for (int64_t g = 0; g < groups; ++g, x += kQuantFloats * R, bytes += Packed<T>::kBytes, halves += Packed<T>::kBytes) {
    if constexpr (Ahead) {
      OUZEL_UNROLL
      for (int v = 0; v < N; ++v) {
        OUZEL_UNROLL
        for (int64_t line = 0; line < Packed<T>::kBytes; line += 64)
          __builtin_prefetch(bytes + v * pass.step + kAheadBytes + line);
      }
    }
    Group group;
    Group::run(group, x, bytes, pass.step);
    OUZEL_UNROLL
    for (int v = 0; v < N; ++v) {
      const vec scales = load_scales(halves + v * pass.scale_step);
      OUZEL_UNROLL
      for (int i = 0; i < R; ++i) {
        const ivec whole = Group::Dot::end(group.sum[i][v], Group::start(x, i));
        acc[i][v] = fma(int_to_float(whole), mul(set_vec(x[8 * R + i]), scales), acc[i][v]);
      }
      if constexpr (Packed<T>::kMinimum) {
        const vec minima = load_scales(halves + 32 + v * pass.scale_step);
        OUZEL_UNROLL
        for (int i = 0; i < R; ++i)
          acc[i][v] = fma(set_vec(x[11 * R + i]), mul(set_vec(x[8 * R + i]), minima), acc[i][v]);
      }
    }
  }
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int v = 0; v < N; ++v) store_vec(out + i * stride + v * kVec, acc[i][v]);
  }
}

}  // namespace ouzel::OUZEL_ISA
