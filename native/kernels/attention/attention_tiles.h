// The two register tiles of attention: scores of query rows against the keys of a block, and values weighted by them.
// Both broadcast one number a row and multiply it with vectors, so each lane's sum is a single ascending chain.
#pragma once

#include "base/f32x16.h"
#include "kernels/kernels.h"

namespace ouzel::OUZEL_ISA {

inline constexpr int kQueryRows = 12;  // query rows (row, group head) that share a softmax tile; at most sixteen
inline constexpr int kKeys = static_cast<int>(kBlockTokens);

// Rows and registers of one pass: rows * vectors accumulators, the vectors and one broadcast fit in the register file.
inline constexpr int kPassRows = kVec == 16 && kRegisters >= 32 ? 12 : 6;
inline constexpr int kPassVectors = kVec == 4 ? 4 : 2;

// scores[i * kKeys + j] = sum over d of q[d * kQueryRows + i] * keys[d * kKeys + j], for R rows and N registers of keys.
template <int R, int N>
OUZEL_INLINE void score_pass(const float* q, const float* keys, int64_t head_dim, float* scores) {
  vec acc[R][N];
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) acc[i][j] = set_vec(0.0f);
  }
  for (int64_t d = 0; d < head_dim; ++d, q += kQueryRows, keys += kKeys) {
    vec key[N];
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) key[j] = load_vec(keys + j * kVec);
    OUZEL_UNROLL
    for (int i = 0; i < R; ++i) {
      const vec query = set_vec(q[i]);
      OUZEL_UNROLL
      for (int j = 0; j < N; ++j) acc[i][j] = fma(query, key[j], acc[i][j]);
    }
  }
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) store_vec(scores + i * kKeys + j * kVec, acc[i][j]);
  }
}

// out[i * pad + j] = out[i * pad + j] * correction[i], then plus p[i * kKeys + s] * values[s * pad + j] for s ascending.
template <int R, int N>
OUZEL_INLINE void value_pass(const float* p, const float* values, int64_t pad, const float* correction, float* out) {
  vec acc[R][N];
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) acc[i][j] = mul(load_vec(out + i * pad + j * kVec), set_vec(correction[i]));
  }
  for (int s = 0; s < kKeys; ++s, values += pad) {
    vec value[N];
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) value[j] = load_vec(values + j * kVec);
    OUZEL_UNROLL
    for (int i = 0; i < R; ++i) {
      const vec weight = set_vec(p[i * kKeys + s]);
      OUZEL_UNROLL
      for (int j = 0; j < N; ++j) acc[i][j] = fma(weight, value[j], acc[i][j]);
    }
  }
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) store_vec(out + i * pad + j * kVec, acc[i][j]);
  }
}

struct ScoreRows {
  const float* q;
  const float* keys;
  int64_t head_dim;
  float* scores;

  template <int R>
  void run(int row) const {
    for (int j = 0; j < kKeys; j += kPassVectors * kVec)
      score_pass<R, kPassVectors>(q + row, keys + j, head_dim, scores + row * kKeys + j);
  }
};

struct ValueRows {
  const float* p;
  const float* values;
  int64_t pad;
  const float* correction;
  float* out;

  template <int R>
  void run(int row) const {
    const float* from = p + row * kKeys;
    float* to = out + row * pad;
    int64_t j = 0;
    for (; j + kPassVectors * kVec <= pad; j += kPassVectors * kVec)
      value_pass<R, kPassVectors>(from, values + j, pad, correction + row, to + j);
    for (; j < pad; j += kVec) value_pass<R, 1>(from, values + j, pad, correction + row, to + j);
  }
};

// f.template run<R>(row) over [0, rows) in the largest passes that fit.
template <class F>
OUZEL_INLINE void for_rows(int rows, const F& f) {
  int row = 0;
  for (; row + kPassRows <= rows; row += kPassRows) f.template run<kPassRows>(row);
  for (; row + 4 <= rows; row += 4) f.template run<4>(row);
  for (; row + 2 <= rows; row += 2) f.template run<2>(row);
  for (; row < rows; ++row) f.template run<1>(row);
}

}  // namespace ouzel::OUZEL_ISA
