// attention and store against double precision; and that a row's bits depend neither on the rows beside it nor on keys
// that it does not see.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "tests/check.h"
#include "tests/kernel_inputs.h"
#include "tests/kernel_reference.h"
#include "tests/kernel_test_linear.h"

namespace ouzel::test {

struct AttentionCase {
  int64_t rows, group, head_dim, value_dim, keys;
  bool causal;  // row r sees keys - rows + r + 1 keys, otherwise all
  float size;   // of queries and keys; large ones make the weights sharp

  std::string text() const {
    return "rows " + std::to_string(rows) + " group " + std::to_string(group) + " head " + std::to_string(head_dim) +
           "/" + std::to_string(value_dim) + " keys " + std::to_string(keys) + (causal ? " causal" : "");
  }
};

// Keys and values as rows and, put there by the `store` kernel a few at a time, as blocks.
struct AttentionOperands {
  AttentionCase c;
  int64_t pad, blocks;
  Floats q, k, v;
  std::vector<std::unique_ptr<Floats>> k_blocks, v_blocks;

  AttentionOperands(const Kernels& kernels, const AttentionCase& given, Random random, float garbage)
      : c(given), pad((c.value_dim + 15) / 16 * 16), blocks((c.keys + kBlockTokens - 1) / kBlockTokens),
        q(c.rows * q_stride()), k(c.keys * (c.head_dim + 5) - 5), v(c.keys * (c.value_dim + 3) - 3) {
    random.fill(q, c.size);
    random.fill(k, c.size);
    random.fill(v);
    for (int64_t b = 0; b < blocks; ++b) {
      k_blocks.push_back(std::make_unique<Floats>(c.head_dim * kBlockTokens, garbage));
      v_blocks.push_back(std::make_unique<Floats>(kBlockTokens * pad, garbage));
    }
    for (int64_t at = 0; at < c.keys;) {
      const int64_t in_block = at % kBlockTokens;
      const int64_t count = std::min({c.keys - at, kBlockTokens - in_block, 1 + at % 7 * 3});
      store(kernels, at, count);
      at += count;
    }
  }
  int64_t q_stride() const { return c.group * c.head_dim + 2; }
  int64_t out_stride() const { return c.group * c.value_dim + 1; }

  void store(const Kernels& kernels, int64_t at, int64_t count) {
    StoreArgs a{};
    a.k = k.data() + at * (c.head_dim + 5);
    a.k_stride = c.head_dim + 5;
    a.v = v.data() + at * (c.value_dim + 3);
    a.v_stride = c.value_dim + 3;
    a.count = count;
    a.at = at % kBlockTokens;
    a.head_dim = c.head_dim;
    a.value_dim = c.value_dim;
    a.k_block = k_blocks[static_cast<size_t>(at / kBlockTokens)]->data();
    a.v_block = v_blocks[static_cast<size_t>(at / kBlockTokens)]->data();
    kernels.store(a);
  }
  int64_t seen(int64_t row) const { return c.causal ? c.keys - c.rows + row + 1 : c.keys; }
};

// Rows in chunks of `row_step`; when `only_seen`, each chunk is given no more keys than its last row sees.
inline Output run_attention(const Kernels& kernels, const AttentionOperands& o, int64_t row_step, bool only_seen) {
  const AttentionCase& c = o.c;
  Floats out(c.rows * o.out_stride(), 77.0f);
  std::vector<const float*> k, v;
  for (int64_t b = 0; b < o.blocks; ++b) {
    k.push_back(o.k_blocks[static_cast<size_t>(b)]->data());
    v.push_back(o.v_blocks[static_cast<size_t>(b)]->data());
  }
  for (int64_t r = 0; r < c.rows; r += row_step) {
    AttentionArgs a{};
    a.rows = std::min(row_step, c.rows - r);
    a.q = o.q.data() + r * o.q_stride();
    a.q_stride = o.q_stride();
    a.group = c.group;
    a.head_dim = c.head_dim;
    a.value_dim = c.value_dim;
    a.k_blocks = k.data();
    a.v_blocks = v.data();
    a.keys = only_seen ? o.seen(r + a.rows - 1) : c.keys;
    a.limit0 = o.seen(r);
    a.limit_step = c.causal ? 1 : 0;
    a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    a.out = out.data() + r * o.out_stride();
    a.out_stride = o.out_stride();
    Scratch scratch(kernels.attention_scratch(a.rows, c.group, c.head_dim, c.value_dim));
    a.scratch = scratch.data();
    kernels.attention(a);
  }
  return Output(out.data(), out.data() + out.size());
}

inline void check_attention(const AttentionOperands& o, const Output& out, Checks& checks) {
  const AttentionCase& c = o.c;
  std::vector<std::vector<float>> keys, values;
  for (int64_t s = 0; s < c.keys; ++s) {
    const float* k = o.k.data() + s * (c.head_dim + 5);
    const float* v = o.v.data() + s * (c.value_dim + 3);
    keys.emplace_back(k, k + c.head_dim);
    values.emplace_back(v, v + c.value_dim);
  }
  const double scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  std::vector<double> bound;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t g = 0; g < c.group; ++g) {
      const float* q = o.q.data() + r * o.q_stride() + g * c.head_dim;
      const std::vector<double> expected = attention_row(q, keys, values, o.seen(r), scale, &bound);
      for (int64_t j = 0; j < c.value_dim; ++j) {
        const double got = out[static_cast<size_t>(r * o.out_stride() + g * c.value_dim + j)];
        const double want = expected[static_cast<size_t>(j)], within = bound[static_cast<size_t>(j)];
        if (!checks.expect(std::fabs(got - want) <= within, "%s: row %ld head %ld [%ld] is %.9g, expected %.9g within %.2g",
                           c.text().c_str(), static_cast<long>(r), static_cast<long>(g), static_cast<long>(j), got, want,
                           within))
          return;
      }
    }
    checks.expect(out[static_cast<size_t>((r + 1) * o.out_stride() - 1)] == 77.0f, "%s: wrote between rows",
                  c.text().c_str());
  }
}

inline std::vector<AttentionCase> attention_cases() {
  return {
      {1, 1, 1, 1, 1, false, 1},       {1, 1, 16, 16, 5, true, 1},      {1, 2, 24, 24, 31, true, 2},
      {2, 1, 32, 32, 32, true, 1},     {3, 1, 15, 17, 33, true, 4},     {5, 2, 64, 64, 64, false, 1},
      {5, 3, 16, 24, 65, true, 2},     {13, 1, 17, 33, 47, false, 1},   {13, 2, 24, 16, 40, true, 4},
      {40, 1, 16, 16, 40, true, 8},    {11, 7, 32, 40, 70, true, 1},    {12, 1, 72, 72, 100, false, 2},
      {25, 2, 128, 128, 130, true, 1}, {4, 8, 33, 80, 97, true, 1},     {70, 1, 64, 64, 200, true, 2},
      {1, 16, 128, 128, 300, true, 4}, {24, 1, 72, 80, 96, false, 8},   {6, 1, 47, 31, 128, false, 16},
  };
}

inline Output test_attention(const Kernels& kernels, Checks& checks) {
  Output all;
  uint64_t seed = 500;
  for (const AttentionCase& c : attention_cases()) {
    const AttentionOperands o(kernels, c, Random(seed), 0.0f);
    const Output out = run_attention(kernels, o, c.rows, false);
    check_attention(o, out, checks);
    all.insert(all.end(), out.begin(), out.end());
    checks.expect(run_attention(kernels, o, 1, true) == out, "%s: steps give other bits", c.text().c_str());
    checks.expect(run_attention(kernels, o, 5, false) == out, "%s: chunks of 5 give other bits", c.text().c_str());
    checks.expect(run_attention(kernels, o, 7, true) == out, "%s: chunks of 7 give other bits", c.text().c_str());
    const AttentionOperands dirty(kernels, c, Random(seed++), -3e30f);
    checks.expect(run_attention(kernels, dirty, c.rows, false) == out, "%s: places past the last key matter",
                  c.text().c_str());
  }
  return all;
}

// Scores far apart: weights vanish, nothing overflows, and the largest alone decides.
inline Output test_attention_extremes(const Kernels& kernels, Checks& checks) {
  const AttentionCase c{3, 1, 4, 5, 70, false, 1};
  AttentionOperands o(kernels, c, Random(9), 0.0f);
  for (int64_t i = 0; i < o.q.size(); ++i) o.q[i] = 1e4f;
  for (int64_t s = 0; s < c.keys; ++s)
    for (int64_t d = 0; d < c.head_dim; ++d) o.k[s * (c.head_dim + 5) + d] = s == 41 ? 1e4f : -1e4f;
  for (int64_t s = 0; s < c.keys; ++s) o.store(kernels, s, 1);
  const Output out = run_attention(kernels, o, c.rows, false);
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t j = 0; j < c.value_dim; ++j)
      checks.expect(out[static_cast<size_t>(r * o.out_stride() + j)] == o.v[41 * (c.value_dim + 3) + j],
                    "row %ld [%ld] is not the value of the one large score", static_cast<long>(r), static_cast<long>(j));
  return out;
}

}  // namespace ouzel::test
