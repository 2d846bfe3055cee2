// Packed weights: quantised rows, products and decoding against their meaning, bit for bit; and that a row's bits are its
// own.
#pragma once

#include <algorithm>
#include <string>

#include "tests/check.h"
#include "tests/kernel_inputs.h"
#include "tests/kernel_test_linear.h"

namespace ouzel::test {

struct PackedCase {
  int64_t rows, n, k;
  WeightType type;
  Activation act;
  bool bias;
  Residual residual;
  int64_t x_gap, y_gap;

  int64_t groups() const { return (k + kGroupColumns - 1) / kGroupColumns; }
  std::string text() const {
    return "rows " + std::to_string(rows) + " n " + std::to_string(n) + " k " + std::to_string(k) + " type " +
           std::to_string(static_cast<int>(type));
  }
};

// A packed matrix of random bytes, its last one against the guard page; the codes that no quantiser writes as well.
struct PackedMatrix {
  WeightType type;
  int64_t k;
  Guarded<uint8_t> bytes;

  PackedMatrix(WeightType t, int64_t n, int64_t columns, Random& random)
      : type(t), k(columns), bytes(packed_bytes(t, n, columns)) {
    for (int64_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(random.bits() >> 9);
    for (int64_t at = 0; at < bytes.size(); at += block()) {
      for (int64_t i = 0; i < header(); i += 2) {
        const uint32_t r = random.bits();
        const auto half = static_cast<uint16_t>((r & 0x8000) | (8 + r % 8) << 10 | (r >> 20 & 1023));
        memcpy(bytes.data() + at + i, &half, 2);
      }
    }
  }
  int64_t header() const { return type == WeightType::q4m ? 64 : 32; }
  int64_t block() const { return packed_panel_bytes(type, kGroupColumns); }
  const uint8_t* place(int64_t n, int64_t g) const {
    return bytes.data() + n / 16 * packed_panel_bytes(type, k) + g * block();
  }
  float half(int64_t n, int64_t g, int64_t offset) const {
    uint16_t bits;
    memcpy(&bits, place(n, g) + offset + n % 16 * 2, 2);
    return static_cast<float>(decoded_f16(bits));
  }
  float scale(int64_t n, int64_t g) const { return half(n, g, 0); }
  float minimum(int64_t n, int64_t g) const { return type == WeightType::q4m ? half(n, g, 32) : 0; }
  int code(int64_t n, int64_t g, int64_t i) const {  // centred
    const int64_t column = type == WeightType::q8 ? i : i % 16;
    const int byte = place(n, g)[header() + column / 4 * 64 + n % 16 * 4 + column % 4];
    if (type == WeightType::q8) return byte - 128;
    return (i < 16 ? byte & 15 : byte >> 4) - (type == WeightType::q4 ? 8 : 0);
  }
};

// A row's group as the contract says.
struct QuantisedReference {
  int code[kGroupColumns] = {};
  float scale = 0;
  int sum = 0;

  QuantisedReference(const float* x, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::fmax(largest, std::fabs(x[i]));
    const float inverse = 127.0f / largest;
    if (std::isinf(inverse)) return;
    scale = largest / 127.0f;
    for (int64_t i = 0; i < count; ++i) sum += code[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  }
};

struct PackedOperands {
  PackedCase c;
  Floats x, bias, residual, start;
  PackedMatrix w;

  explicit PackedOperands(const PackedCase& given, Random random)
      : c(given), x(LinearOperands::extent(c.rows, c.k, c.x_gap)), bias(c.n),
        residual(LinearOperands::extent(c.rows, c.n, c.y_gap)), start(residual.size()), w(c.type, c.n, c.k, random) {
    random.fill(x);
    random.fill(bias);
    random.fill(residual);
    random.fill(start);
    // A group of zeros, one too small to be quantised and one of ties: multiples of a half.
    if (c.rows > 2) {
      std::fill_n(x.data() + x_stride(), std::min<int64_t>(c.k, 32), 0.0f);
      std::fill_n(x.data() + 2 * x_stride(), std::min<int64_t>(c.k, 32), 1e-38f);
    }
    for (int64_t i = 0; i < std::min<int64_t>(c.k, 32); ++i) x[i] = 63.5f - 0.25f * static_cast<float>(i);
  }
  int64_t x_stride() const { return c.k + c.x_gap; }
  int64_t y_stride() const { return c.n + c.y_gap; }
};

inline Scratch quantised(const Kernels& kernels, const PackedOperands& o, int64_t first, int64_t rows) {
  Scratch to(rows * o.c.groups() * kQuantFloats);
  kernels.quantise({o.x.data() + first * o.x_stride(), o.x_stride(), rows, o.c.k, kernels.quantise_unit(rows), to.data()});
  return to;
}

// As run_linear.
inline Output run_packed(const Kernels& kernels, const PackedOperands& o, int64_t row_step,
                         const std::vector<int64_t>& pieces) {
  Floats y(o.start.size());
  std::copy(o.start.data(), o.start.data() + y.size(), y.data());
  for (int64_t m = 0; m < o.c.rows; m += row_step) {
    const int64_t rows = std::min(row_step, o.c.rows - m);
    Scratch x = quantised(kernels, o, m, rows);
    for (size_t p = 0; p + 1 < pieces.size(); ++p) {
      LinearPackedArgs a{};
      a.x = x.data();
      a.rows = rows;
      a.unit = kernels.quantise_unit(rows);
      a.w = o.w.bytes.data();
      a.type = o.c.type;
      a.k = o.c.k;
      a.bias = o.c.bias ? o.bias.data() : nullptr;
      a.y = y.data() + m * o.y_stride();
      a.y_stride = a.residual_stride = o.y_stride();
      if (o.c.residual == Residual::apart) a.residual = o.residual.data() + m * o.y_stride();
      if (o.c.residual == Residual::in_place) a.residual = a.y;
      a.act = o.c.act;
      a.n0 = pieces[p];
      a.n1 = pieces[p + 1];
      kernels.linear_packed(a);
    }
  }
  return Output(y.data(), y.data() + y.size());
}

// The exact result before the activation. std::fmaf rounds once on every machine.
inline float packed_sum(const PackedOperands& o, int64_t m, int64_t n) {
  float acc = 0;
  for (int64_t g = 0; g < o.c.groups(); ++g) {
    const int64_t count = std::min(kGroupColumns, o.c.k - g * kGroupColumns);
    const QuantisedReference x(o.x.data() + m * o.x_stride() + g * kGroupColumns, count);
    int dot = 0;
    for (int64_t i = 0; i < count; ++i) dot += o.w.code(n, g, i) * x.code[i];
    acc = std::fmaf(static_cast<float>(dot), x.scale * o.w.scale(n, g), acc);
    if (o.c.type == WeightType::q4m) acc = std::fmaf(static_cast<float>(x.sum), x.scale * o.w.minimum(n, g), acc);
  }
  return o.c.bias ? acc + o.bias[n] : acc;
}

inline void check_packed(const Kernels& kernels, const PackedOperands& o, const Output& y, Checks& checks) {
  for (int64_t m = 0; m < o.c.rows; ++m) {
    std::vector<float> expected(static_cast<size_t>(o.c.n));
    for (int64_t n = 0; n < o.c.n; ++n) expected[static_cast<size_t>(n)] = packed_sum(o, m, n);
    kernels.activate(expected.data(), o.c.act, o.c.n, expected.data());
    for (int64_t n = 0; n < o.c.n; ++n) {
      const int64_t at = m * o.y_stride() + n;
      float wanted = expected[static_cast<size_t>(n)];
      if (o.c.residual != Residual::none) wanted += o.c.residual == Residual::apart ? o.residual[at] : o.start[at];
      const float got = y[static_cast<size_t>(at)];
      if (!checks.expect(memcmp(&got, &wanted, sizeof(got)) == 0, "%s: [%ld][%ld] is %.9g, expected %.9g",
                         o.c.text().c_str(), static_cast<long>(m), static_cast<long>(n), got, wanted))
        return;
    }
    for (int64_t at = m * o.y_stride() + o.c.n; at < (m + 1) * o.y_stride() && m + 1 < o.c.rows; ++at)
      checks.expect(y[static_cast<size_t>(at)] == o.start[at], "%s: wrote between rows", o.c.text().c_str());
  }
}

inline std::vector<PackedCase> packed_cases() {
  const int64_t sizes[][2] = {{1, 1}, {1, 50}, {2, 16}, {3, 17}, {4, 32}, {5, 33}, {6, 9}, {7, 64}, {8, 31}, {9, 16}, {10, 3}, {11, 40}, {12, 18}, {13, 48}, {25, 20}};
  std::vector<PackedCase> cases;
  int turn = 0;
  for (const int64_t k : {1, 4, 31, 32, 33, 64, 95, 160, 521}) {
    for (const WeightType type : {WeightType::q8, WeightType::q4, WeightType::q4m}) {
      for (const auto& size : sizes) {
        ++turn;
        cases.push_back({size[0], size[1], k, type, static_cast<Activation>(turn % 4), turn % 3 != 0,
                         static_cast<Residual>(turn % 5 % 3), turn % 2 * 3, turn % 7 % 3});
      }
    }
  }
  cases.push_back({40, 70, 2080, WeightType::q4, Activation::silu, true, Residual::in_place, 0, 0});
  cases.push_back({40, 70, 2080, WeightType::q8, Activation::none, false, Residual::none, 0, 0});
  return cases;
}

inline Output test_packed_linear(const Kernels& kernels, Checks& checks) {
  Output all;
  uint64_t seed = 900;
  for (const PackedCase& c : packed_cases()) {
    const PackedOperands o(c, Random(seed++));
    const Output y = run_packed(kernels, o, c.rows, {0, c.n});
    check_packed(kernels, o, y, checks);
    all.insert(all.end(), y.begin(), y.end());
    checks.expect(run_packed(kernels, o, 1, {0, c.n}) == y, "%s: rows one by one give other bits", c.text().c_str());
    const int64_t a = c.n / 3 / 16 * 16, b = c.n / 2 / 16 * 16;
    const Output split = run_packed(kernels, o, std::max<int64_t>(1, c.rows / 2), {0, a, b, c.n});
    checks.expect(split == y, "%s: pieces of the columns give other bits", c.text().c_str());
  }
  return all;
}

// Every code at its place, whatever the tile; scales and sums beside them.
inline Output test_quantise(const Kernels& kernels, Checks& checks) {
  Output all;
  for (const int64_t rows : {1, 3, 4, 6, 7, 12, 13, 17}) {
    for (const int64_t k : {1, 31, 32, 33, 100}) {
      const PackedOperands o({rows, 1, k, WeightType::q8, Activation::none, false, Residual::none, 2, 0}, Random(40));
      Scratch memory = quantised(kernels, o, 0, rows);
      for (int64_t m = 0; m < rows; ++m) {
        const int64_t unit = kernels.quantise_unit(rows), tile = m / unit * unit, width = std::min(unit, rows - tile);
        for (int64_t g = 0; g < o.c.groups(); ++g) {
          const int64_t count = std::min(kGroupColumns, k - g * kGroupColumns);
          const QuantisedReference wanted(o.x.data() + m * o.x_stride() + g * kGroupColumns, count);
          const float* at = memory.data() + (tile * o.c.groups() + g * width) * kQuantFloats + (m - tile);
          for (int64_t i = 0; i < kGroupColumns; ++i) {
            const int code = reinterpret_cast<const int8_t*>(at + i / 4 * width)[i % 4];
            checks.expect(code == wanted.code[i], "row %ld group %ld column %ld is %d, expected %d", static_cast<long>(m),
                          static_cast<long>(g), static_cast<long>(i), code, wanted.code[i]);
          }
          int starts[2];
          memcpy(&starts[0], at + 9 * width, 4);
          memcpy(&starts[1], at + 10 * width, 4);
          const bool sums = starts[0] == -8 * wanted.sum && starts[1] == -128 * wanted.sum &&
                            at[11 * width] == static_cast<float>(wanted.sum);
          checks.expect(sums && at[8 * width] == wanted.scale, "row %ld group %ld: scale or sums", static_cast<long>(m),
                        static_cast<long>(g));
          all.push_back(at[8 * width]);
          all.push_back(at[11 * width]);
        }
      }
    }
  }
  // What is not finite shows in the scale.
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int64_t place : {0, 17, 31}) {
      float row[32] = {1, 2, 3};
      row[place] = bad;
      Scratch to(kQuantFloats);
      kernels.quantise({row, 32, 1, 32, kernels.quantise_unit(1), to.data()});
      checks.expect(std::isnan(to.data()[8]) && to.data()[11] == 0, "%g at %ld", bad, static_cast<long>(place));
    }
  }
  return all;
}

inline Output test_decode_packed(const Kernels& kernels, Checks& checks) {
  Output all;
  Random random(60);
  for (const WeightType type : {WeightType::q8, WeightType::q4, WeightType::q4m}) {
    for (const int64_t k : {1, 15, 32, 33, 100}) {
      const PackedMatrix w(type, 20, k, random);
      for (const int64_t row : {0, 1, 15, 16, 19}) {
        Floats y(k);
        kernels.decode_packed(w.bytes.data(), type, k, row, y.data());
        for (int64_t i = 0; i < k; ++i) {
          const int64_t g = i / 32;
          float wanted = static_cast<float>(w.code(row, g, i % 32)) * w.scale(row, g);
          if (type == WeightType::q4m) wanted += w.minimum(row, g);
          checks.expect(memcmp(&y[i], &wanted, 4) == 0, "type %d row %ld column %ld is %.9g, expected %.9g",
                        static_cast<int>(type), static_cast<long>(row), static_cast<long>(i), y[i], wanted);
          all.push_back(y[i]);
        }
      }
    }
  }
  return all;
}

}  // namespace ouzel::test
