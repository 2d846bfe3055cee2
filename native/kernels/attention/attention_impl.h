// Attention of one key head with a running softmax. Query rows and the heads of their group are flattened into tiles of
// kQueryRows, so that grouped heads share the loads of keys and values when decoding as well.
#pragma once

#include "base/f32x16_math.h"
#include "kernels/attention/attention_tiles.h"

namespace ouzel::OUZEL_ISA {

OUZEL_INLINE int64_t padded(int64_t value_dim) { return (value_dim + 15) / 16 * 16; }

// The scales behind a block's codes.
OUZEL_INLINE float* cache_scales(void* block, int64_t width) {
  return reinterpret_cast<float*>(static_cast<char*>(block) + cache_block_bytes(WeightType::q8, width)) - kKeys;
}
OUZEL_INLINE const float* cache_scales(const void* block, int64_t width) {
  return cache_scales(const_cast<void*>(block), width);
}

static int64_t attention_scratch(int64_t, int64_t, int64_t head_dim, int64_t value_dim) {
  const int64_t queries = (head_dim * kQueryRows + 15) / 16 * 16;
  return queries + kQueryRows * kKeys + kQueryRows * padded(value_dim);
}

static int64_t attention_rows(int64_t group) {
  const int64_t rows = 4 * kQueryRows / group;
  return rows > 1 ? rows : 1;
}

// State of up to kQueryRows query rows; lane i of the vectors belongs to row i.
template <WeightType T>
struct AttentionTile {
  const AttentionArgs& a;
  int64_t first;  // flattened index of the tile's first query row
  int rows;
  int64_t pad;  // of value_dim
  float* q;       // [head_dim][kQueryRows]
  float* scores;  // [kQueryRows][kKeys]
  float* out;     // [kQueryRows][pad]
  int64_t limit[kQueryRows];  // keys that the row sees
  int64_t most = 0;
  f32x16 maximum = set(-__builtin_inff());
  f32x16 total = zero();
  alignas(64) float lanes[16 * 16] = {};
  alignas(64) float per_row[16] = {};

  AttentionTile(const AttentionArgs& args, int64_t first_row)
      : a(args), first(first_row), pad(padded(args.value_dim)), q(args.scratch) {
    const int64_t left = a.rows * a.group - first;
    rows = static_cast<int>(left < kQueryRows ? left : kQueryRows);
    scores = q + (a.head_dim * kQueryRows + 15) / 16 * 16;
    out = scores + kQueryRows * kKeys;
    for (int i = 0; i < rows; ++i) {
      const int64_t row = (first + i) / a.group, head = (first + i) % a.group;
      const int64_t sees = a.limit0 + row * a.limit_step;
      limit[i] = sees < a.keys ? sees : a.keys;
      if (limit[i] > most) most = limit[i];
      const float* from = a.q + row * a.q_stride + head * a.head_dim;
      for (int64_t d = 0; d < a.head_dim; ++d) q[d * kQueryRows + i] = from[d];
    }
    for (int64_t i = 0; i < rows * pad; i += 16) store(out + i, zero());
  }

  void run() {
    for (int64_t start = 0; start < most; start += kKeys) {
      const int64_t block = start / kKeys, next = start + kKeys < most ? block + 1 : block;
      const void *keys = a.k_blocks[block], *values = a.v_blocks[block];
      for_rows(rows, ScoreRows<T>{q, keys, a.head_dim, values, scores});
      if constexpr (T == WeightType::q8) for_each_score(cache_scales(keys, a.head_dim));
      softmax(start);
      if constexpr (T == WeightType::q8) for_each_score(cache_scales(values, pad));
      for_rows(rows, ValueRows<T>{scores, values, pad, per_row, a.k_blocks[next], out});
    }
    finish();
  }

  // Every row of scores times the keys' factors.
  void for_each_score(const float* factors) {
    const f32x16 low = load(factors), high = load(factors + 16);
    for (int i = 0; i < rows; ++i) {
      float* row = scores + i * kKeys;
      store(row, mul(load(row), low));
      store(row + 16, mul(load(row + 16), high));
    }
  }

  // Scores become weights; per_row receives each row's correction. A row that sees no key of the block keeps its state:
  // its weights are zero and its correction is exp(0) = 1.
  void softmax(int64_t start) {
    for (int i = 0; i < rows; ++i) scale_row(scores + i * kKeys, limit[i] - start, lanes + i * 16);
    const f32x16 higher = max(trees<MaxLanes>(lanes), maximum);
    const f32x16 correction = exp_bounded(sub(maximum, higher));
    maximum = higher;
    store(per_row, higher);
    for (int i = 0; i < rows; ++i) weigh_row(scores + i * kKeys, per_row[i], lanes + i * 16);
    total = fma(total, correction, trees<AddLanes>(lanes));
    store(per_row, correction);
  }

  void scale_row(float* row, int64_t sees, float* most_lanes) const {
    f32x16 low = mul(load(row), set(a.scale)), high = mul(load(row + 16), set(a.scale));
    if (sees < kKeys) {
      alignas(64) static constexpr float kIndex[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                       16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
      const f32x16 end = set(static_cast<float>(sees > 0 ? sees : 0)), unseen = set(-__builtin_inff());
      low = select_less(load(kIndex), end, low, unseen);
      high = select_less(load(kIndex + 16), end, high, unseen);
    }
    store(row, low);
    store(row + 16, high);
    store(most_lanes, max(low, high));
  }

  static void weigh_row(float* row, float highest, float* sum_lanes) {
    const f32x16 low = exp_bounded(sub(load(row), set(highest)));
    const f32x16 high = exp_bounded(sub(load(row + 16), set(highest)));
    store(row, low);
    store(row + 16, high);
    store(sum_lanes, add(low, high));
  }

  // Adding zero makes a negative zero positive: its sign could depend on weights of zero times unseen values.
  void finish() {
    store(per_row, total);
    for (int i = 0; i < rows; ++i) {
      const int64_t row = (first + i) / a.group, head = (first + i) % a.group;
      float* to = a.out + row * a.out_stride + head * a.value_dim;
      for (int64_t j = 0; j < a.value_dim; j += 16) {
        const f32x16 v = add(div(load(out + i * pad + j), set(per_row[i])), zero());
        store_first(to + j, v, a.value_dim - j);
      }
    }
  }
};

template <WeightType T>
static void attention_as(const AttentionArgs& a) {
  for (int64_t first = 0; first < a.rows * a.group; first += kQueryRows) AttentionTile<T>(a, first).run();
}

static void attention(const AttentionArgs& a) {
  if (a.cache == WeightType::q8) return attention_as<WeightType::q8>(a);
  if (a.cache == WeightType::f16) return attention_as<WeightType::f16>(a);
  attention_as<WeightType::f32>(a);
}

}  // namespace ouzel::OUZEL_ISA
