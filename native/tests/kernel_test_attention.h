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
  WeightType cache = WeightType::f32;

  std::string text() const {
    return "rows " + std::to_string(rows) + " group " + std::to_string(group) + " head " + std::to_string(head_dim) +
           "/" + std::to_string(value_dim) + " keys " + std::to_string(keys) + (causal ? " causal" : "") + " cache " +
           std::to_string(static_cast<int>(cache));
  }
};

// Keys and values as rows and, put there by the `store` kernel a few at a time, as blocks.
struct AttentionOperands {
  AttentionCase c;
  int64_t pad, blocks;
  Floats q, k, v;
  std::vector<std::unique_ptr<Floats>> k_blocks, v_blocks;  // of the cache's type, whatever it is

  AttentionOperands(const Kernels& kernels, const AttentionCase& given, Random random, float garbage)
      : c(given), pad((c.value_dim + 15) / 16 * 16), blocks((c.keys + kBlockTokens - 1) / kBlockTokens),
        q(c.rows * q_stride()), k(c.keys * (c.head_dim + 5) - 5), v(c.keys * (c.value_dim + 3) - 3) {
    random.fill(q, c.size);
    random.fill(k, c.size);
    random.fill(v);
    for (int64_t b = 0; b < blocks; ++b) {
      k_blocks.push_back(std::make_unique<Floats>(cache_block_bytes(c.cache, c.head_dim) / 4, garbage));
      v_blocks.push_back(std::make_unique<Floats>(cache_block_bytes(c.cache, pad) / 4, garbage));
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
    a.cache = c.cache;
    a.k_block = k_blocks[static_cast<size_t>(at / kBlockTokens)]->data();
    a.v_block = v_blocks[static_cast<size_t>(at / kBlockTokens)]->data();
    kernels.store(a);
  }

  // A number of a block, in double precision.
  double kept(const Floats& block, int64_t width, int64_t place, int64_t token) const {
    if (c.cache == WeightType::f32) return block[place];
    if (c.cache == WeightType::f16) return decoded_f16(reinterpret_cast<const uint16_t*>(block.data())[place]);
    const float scale = block[cache_block_bytes(c.cache, width) / 4 - kBlockTokens + token % kBlockTokens];
    return static_cast<double>(reinterpret_cast<const int8_t*>(block.data())[place]) * scale;
  }
  double key(int64_t s, int64_t d) const {
    return kept(*k_blocks[static_cast<size_t>(s / kBlockTokens)], c.head_dim, d * kBlockTokens + s % kBlockTokens, s);
  }
  double value(int64_t s, int64_t j) const {
    return kept(*v_blocks[static_cast<size_t>(s / kBlockTokens)], pad, s % kBlockTokens * pad + j, s);
  }
  int64_t seen(int64_t row) const { return c.causal ? c.keys - c.rows + row + 1 : c.keys; }
};

// Rows in chunks of `row_step`; when `only_seen`, each chunk is given no more keys than its last row sees.
inline Output run_attention(const Kernels& kernels, const AttentionOperands& o, int64_t row_step, bool only_seen) {
  const AttentionCase& c = o.c;
  Floats out(c.rows * o.out_stride(), 77.0f);
  std::vector<const void*> k, v;
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
    a.cache = c.cache;
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

// What a cache keeps of `row`: within half a unit of its type.
inline void check_kept(const AttentionOperands& o, const float* row, int64_t width, const std::vector<float>& kept,
                       Checks& checks) {
  float largest = 0;
  for (int64_t i = 0; i < width; ++i) largest = std::fmax(largest, std::fabs(row[i]));
  for (int64_t i = 0; i < width; ++i) {
    double bound = 0;
    if (o.c.cache == WeightType::f16) bound = std::fabs(row[i]) * 0x1p-11 + 0x1p-25;
    if (o.c.cache == WeightType::q8) bound = largest / 254.0 * 1.0001;
    const double got = kept[static_cast<size_t>(i)];
    if (!checks.expect(std::fabs(got - row[i]) <= bound, "%s: keeps %.9g of %.9g", o.c.text().c_str(), got, row[i])) return;
  }
}

inline void check_attention(const AttentionOperands& o, const Output& out, Checks& checks) {
  const AttentionCase& c = o.c;
  std::vector<std::vector<float>> keys, values;
  for (int64_t s = 0; s < c.keys; ++s) {
    keys.emplace_back();
    values.emplace_back();
    for (int64_t d = 0; d < c.head_dim; ++d) keys.back().push_back(static_cast<float>(o.key(s, d)));
    for (int64_t j = 0; j < c.value_dim; ++j) values.back().push_back(static_cast<float>(o.value(s, j)));
    check_kept(o, o.k.data() + s * (c.head_dim + 5), c.head_dim, keys.back(), checks);
    check_kept(o, o.v.data() + s * (c.value_dim + 3), c.value_dim, values.back(), checks);
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
  std::vector<AttentionCase> cases = {
      {1, 1, 1, 1, 1, false, 1},       {1, 1, 16, 16, 5, true, 1},      {1, 2, 24, 24, 31, true, 2},
      {2, 1, 32, 32, 32, true, 1},     {3, 1, 15, 17, 33, true, 4},     {5, 2, 64, 64, 64, false, 1},
      {5, 3, 16, 24, 65, true, 2},     {13, 1, 17, 33, 47, false, 1},   {13, 2, 24, 16, 40, true, 4},
      {40, 1, 16, 16, 40, true, 8},    {11, 7, 32, 40, 70, true, 1},    {12, 1, 72, 72, 100, false, 2},
      {25, 2, 128, 128, 130, true, 1}, {4, 8, 33, 80, 97, true, 1},     {70, 1, 64, 64, 200, true, 2},
      {1, 16, 128, 128, 300, true, 4}, {24, 1, 72, 80, 96, false, 8},   {6, 1, 47, 31, 128, false, 16},
  };
  const size_t count = cases.size();
  for (const WeightType cache : {WeightType::f16, WeightType::q8}) {
    for (size_t i = 0; i < count; ++i) {
      cases.push_back(cases[i]);
      cases.back().cache = cache;
    }
  }
  return cases;
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
    const AttentionOperands dirty(kernels, c, Random(seed++), c.cache == WeightType::f32 ? -3e30f : 300.0f);
    // In halves 300 is 0 and 3.67; as codes 0, 0, -106, 67.
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

// Halves of every kind of number: rounding to even, denormals, the largest, and what is beyond it.
inline Output test_cache_halves(const Kernels& kernels, Checks& checks) {
  Output all;
  Random random(70);
  for (int turn = 0; turn < 4000; ++turn) {
    float row[16];
    for (float& x : row) {
      const int exponent = static_cast<int>(random.below(46)) - 28;
      x = std::ldexp(random.uniform(), exponent);
    }
    row[0] = 1.0f + 0x1p-11f * static_cast<float>(turn % 8);
    row[1] = 65519.0f;
    row[2] = -1e20f;
    row[3] = 0x1p-25f * static_cast<float>(turn % 5);
    Floats k(cache_block_bytes(WeightType::f16, 16) / 4), v(k.size());
    StoreArgs a{};
    a.k = a.v = row;
    a.count = 1;
    a.at = turn % kBlockTokens;
    a.head_dim = a.value_dim = 16;
    a.k_block = k.data();
    a.v_block = v.data();
    a.cache = WeightType::f16;
    kernels.store(a);
    const uint16_t* keys = reinterpret_cast<const uint16_t*>(k.data());
    const uint16_t* values = reinterpret_cast<const uint16_t*>(v.data());
    for (int64_t i = 0; i < 16; ++i) {
      const uint16_t key = keys[i * kBlockTokens + a.at], value = values[a.at * 16 + i];
      const double got = decoded_f16(key), want = std::fmax(-65504.0, std::fmin(65504.0, row[i]));
      const double below = decoded_f16(static_cast<uint16_t>(key & 0x7fff ? key - 1 : key)), error = std::fabs(got - want);
      // The neighbours are no nearer, and at a tie the even one is taken.
      const double above = (key & 0x7fff) < 0x7bff ? decoded_f16(static_cast<uint16_t>(key + 1)) : got;
      for (const double other : {below, above}) {
        const double distance = std::fabs(other - want);
        const bool right = other == got || error < distance || (error == distance && key % 2 == 0);
        checks.expect(right && key == value, "%.9g is kept as %.9g", row[i], got);
      }
      all.push_back(static_cast<float>(got));
    }
  }
  return all;
}

}  // namespace ouzel::test
