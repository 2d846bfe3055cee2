// The two register tiles of attention: scores of query rows against the keys of a block, and values weighted by them.
// Both broadcast one number a row and multiply it with vectors, so each lane's sum is a single ascending chain.
#pragma once

#include "base/f32x16.h"
#include "kernels/kernels.h"
#include "kernels/stored/stored.h"

namespace ouzel::OUZEL_ISA {

inline constexpr int kQueryRows = 12;  // query rows (row, group head) that share a softmax tile; at most sixteen
inline constexpr int kKeys = static_cast<int>(kBlockTokens);

// Rows and registers of one pass: rows * vectors accumulators, the vectors and one broadcast fit in the register file.
inline constexpr int kPassRows = kVec == 16 && kRegisters >= 32 ? 12 : 6;
inline constexpr int kPassVectors = kVec == 4 ? 4 : 2;

// Few rows use keys and values faster than memory gives them: while they go over one array they ask for the next one.
inline constexpr int kRowsAhead = 4;

OUZEL_INLINE void ask(const char* next, int64_t step, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(next + step * bytes + line);
}

// scores[i * kKeys + j] = sum over d of q[d * kQueryRows + i] * keys[d * kKeys + j], for R rows and N registers of keys.
template <WeightType T, int R, int N>
OUZEL_INLINE void score_pass(const float* q, const Element<T>* keys, int64_t head_dim, const char* next, float* scores) {
  vec acc[R][N];
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) acc[i][j] = set_vec(0.0f);
  }
  for (int64_t d = 0; d < head_dim; ++d, q += kQueryRows, keys += kKeys) {
    if constexpr (R <= kRowsAhead) ask(next, d, kKeys * sizeof(Element<T>));
    vec key[N];
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) key[j] = Stored<T>::load_part(keys + j * kVec);
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
template <WeightType T, int R, int N>
OUZEL_INLINE void value_pass(const float* p, const Element<T>* values, int64_t pad, const float* correction,
                             const char* next, float* out) {
  vec acc[R][N];
  OUZEL_UNROLL
  for (int i = 0; i < R; ++i) {
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) acc[i][j] = mul(load_vec(out + i * pad + j * kVec), set_vec(correction[i]));
  }
  for (int s = 0; s < kKeys; ++s, values += pad) {
    if constexpr (R <= kRowsAhead) ask(next, s, N * kVec * sizeof(Element<T>));
    vec value[N];
    OUZEL_UNROLL
    for (int j = 0; j < N; ++j) value[j] = Stored<T>::load_part(values + j * kVec);
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

template <WeightType T>
struct ScoreRows {
  const float* q;
  const void* keys;
  int64_t head_dim;
  const void* next;  // memory to ask for: the block's values
  float* scores;

  template <int R>
  void run(int row) const {
    for (int j = 0; j < kKeys; j += kPassVectors * kVec)
      score_pass<T, R, kPassVectors>(q + row, static_cast<const Element<T>*>(keys) + j, head_dim,
                                     static_cast<const char*>(next), scores + row * kKeys + j);
  }
};

template <WeightType T>
struct ValueRows {
  const float* p;
  const void* values;
  int64_t pad;
  const float* correction;
  const void* next;  // the next block's keys
  float* out;

  template <int R>
  void run(int row) const {
    const float* from = p + row * kKeys;
    float* to = out + row * pad;
    int64_t j = 0;
    for (; j + kPassVectors * kVec <= pad; j += kPassVectors * kVec) pass<R, kPassVectors>(from, j, row, to);
    for (; j < pad; j += kVec) pass<R, 1>(from, j, row, to);
  }

  // The passes share the memory to ask for: each takes kKeys pieces as wide as its own registers.
  template <int R, int N>
  void pass(const float* from, int64_t j, int row, float* to) const {
    const char* part = static_cast<const char*>(next) + j * kKeys * static_cast<int64_t>(sizeof(Element<T>));
    value_pass<T, R, N>(from, static_cast<const Element<T>*>(values) + j, pad, correction + row, part, to + j);
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
