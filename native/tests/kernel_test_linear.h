// linear against double precision, at the edges of vectors, tiles and blocks; and that a row's bits are its own.
#pragma once

#include <algorithm>
#include <string>

#include "tests/check.h"
#include "tests/kernel_inputs.h"
#include "tests/kernel_reference.h"

namespace ouzel::test {

using Output = std::vector<float>;

enum class Residual { none, apart, in_place };

struct LinearCase {
  int64_t rows, n, k;
  WeightType type;
  Activation act;
  bool bias;
  Residual residual;
  int64_t x_gap, y_gap;  // floats between rows

  std::string text() const {
    return "rows " + std::to_string(rows) + " n " + std::to_string(n) + " k " + std::to_string(k) + " type " +
           std::to_string(static_cast<int>(type)) + " act " + std::to_string(static_cast<int>(act));
  }
};

// Operands of a case; the last row of each has no gap behind it, so the guard page is next to its last element.
struct LinearOperands {
  LinearCase c;
  Floats x, bias, residual, start;
  StoredMatrix w;

  explicit LinearOperands(const LinearCase& given, Random random)
      : c(given), x(extent(c.rows, c.k, c.x_gap)), bias(c.n), residual(extent(c.rows, c.n, c.y_gap)),
        start(extent(c.rows, c.n, c.y_gap)), w(c.type, c.n * c.k, random) {
    random.fill(x);
    random.fill(bias);
    random.fill(residual);
    random.fill(start);
  }
  static int64_t extent(int64_t rows, int64_t width, int64_t gap) { return rows * width + (rows - 1) * gap; }
  int64_t y_stride() const { return c.n + c.y_gap; }

  LinearArgs args(float* y, float* scratch) const {
    LinearArgs a{};
    a.x = x.data();
    a.x_stride = c.k + c.x_gap;
    a.rows = c.rows;
    a.w = w.data();
    a.type = c.type;
    a.k = c.k;
    a.bias = c.bias ? bias.data() : nullptr;
    a.residual = c.residual == Residual::none ? nullptr : c.residual == Residual::apart ? residual.data() : y;
    a.residual_stride = y_stride();
    a.y = y;
    a.y_stride = y_stride();
    a.act = c.act;
    a.n0 = 0;
    a.n1 = c.n;
    a.scratch = scratch;
    return a;
  }
  double added(int64_t m, int64_t n) const {
    if (c.residual == Residual::none) return 0;
    return c.residual == Residual::apart ? residual[m * y_stride() + n] : start[m * y_stride() + n];
  }
};

// Runs the kernel on a fresh y that holds `start`; `pieces` splits the columns, `row_step` the rows.
inline Output run_linear(const Kernels& kernels, const LinearOperands& o, int64_t row_step,
                         const std::vector<int64_t>& pieces) {
  Floats y(o.start.size());
  std::copy(o.start.data(), o.start.data() + y.size(), y.data());
  Scratch scratch(kernels.linear_scratch(o.c.k));
  for (int64_t m = 0; m < o.c.rows; m += row_step) {
    for (size_t p = 0; p + 1 < pieces.size(); ++p) {
      LinearArgs a = o.args(y.data(), scratch.data());
      a.x += m * a.x_stride;
      a.y += m * a.y_stride;
      if (a.residual) a.residual += m * a.residual_stride;
      a.rows = std::min(row_step, o.c.rows - m);
      a.n0 = pieces[p];
      a.n1 = pieces[p + 1];
      kernels.linear(a);
    }
  }
  return Output(y.data(), y.data() + y.size());
}

// Roundings: a lane's chain of k / 16, the four levels of the tree, bias, activation (slope at most 1.2), residual.
inline void check_linear(const LinearOperands& o, const Output& y, Checks& checks) {
  for (int64_t m = 0; m < o.c.rows; ++m) {
    for (int64_t n = 0; n < o.c.n; ++n) {
      double sum = o.c.bias ? o.bias[n] : 0.0, size = std::fabs(sum);
      for (int64_t i = 0; i < o.c.k; ++i) {
        const double term = o.x[m * (o.c.k + o.c.x_gap) + i] * o.w.at(n * o.c.k + i);
        sum += term;
        size += std::fabs(term);
      }
      const double expected = activated(sum, o.c.act) + o.added(m, n);
      const double chain = static_cast<double>(o.c.k) / 16 + 7;
      const double bound = 1.2 * chain * kUnit * size + activation_error(sum, o.c.act) + 2 * kUnit * std::fabs(expected);
      const double got = y[static_cast<size_t>(m * o.y_stride() + n)];
      if (!checks.expect(std::fabs(got - expected) <= bound, "%s: [%ld][%ld] is %.9g, expected %.9g within %.2g",
                         o.c.text().c_str(), static_cast<long>(m), static_cast<long>(n), got, expected, bound))
        return;
    }
    for (int64_t g = o.c.n; g < o.y_stride() && m + 1 < o.c.rows; ++g) {
      const int64_t at = m * o.y_stride() + g;
      checks.expect(y[static_cast<size_t>(at)] == o.start[at], "%s: wrote between rows", o.c.text().c_str());
    }
  }
}

inline std::vector<LinearCase> linear_cases() {
  const int64_t sizes[][2] = {{1, 1}, {1, 13}, {2, 6}, {3, 17}, {4, 5}, {5, 50}, {6, 9}, {8, 7}, {9, 13}, {13, 29}, {30, 7}};
  std::vector<LinearCase> cases;
  int turn = 0;
  for (const int64_t k : {1, 15, 16, 17, 31, 32, 33, 47, 128, 530, 1040}) {
    for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::f16}) {
      for (const auto& size : sizes) {
        ++turn;
        cases.push_back({size[0], size[1], k, type, static_cast<Activation>(turn % 4), turn % 3 != 0,
                         static_cast<Residual>(turn % 5 % 3), turn % 2 * 3, turn % 7 % 3});
      }
    }
  }
  cases.push_back({101, 103, 40, WeightType::bf16, Activation::gelu_tanh, true, Residual::in_place, 1, 2});
  cases.push_back({101, 99, 515, WeightType::f32, Activation::none, false, Residual::none, 0, 0});
  cases.push_back({27, 52, 2065, WeightType::f16, Activation::silu, true, Residual::apart, 0, 0});
  return cases;
}

inline Output test_linear(const Kernels& kernels, Checks& checks) {
  Output all;
  uint64_t seed = 100;
  for (const LinearCase& c : linear_cases()) {
    const LinearOperands o(c, Random(seed++));
    const Output y = run_linear(kernels, o, c.rows, {0, c.n});
    check_linear(o, y, checks);
    all.insert(all.end(), y.begin(), y.end());
    const Output alone = run_linear(kernels, o, 1, {0, c.n});
    checks.expect(alone == y, "%s: rows one by one give other bits", c.text().c_str());
    const int64_t a = c.n / 3, b = c.n - c.n / 4;
    const Output split = run_linear(kernels, o, std::max<int64_t>(1, c.rows / 2), {0, a, b, c.n});
    checks.expect(split == y, "%s: pieces of the columns give other bits", c.text().c_str());
  }
  return all;
}

// An activation within linear is the activation after it, and a bias or residual of its own rounds the same.
inline Output test_linear_fusion(const Kernels& kernels, Checks& checks) {
  Output all;
  for (int act = 0; act < 4; ++act) {
    LinearCase c{11, 37, 70, WeightType::bf16, static_cast<Activation>(act), true, Residual::apart, 0, 0};
    const LinearOperands fused(c, Random(7));
    c.act = Activation::none;
    c.residual = Residual::none;
    const LinearOperands apart(c, Random(7));
    Output y = run_linear(kernels, apart, c.rows, {0, c.n});
    const int64_t count = static_cast<int64_t>(y.size());
    kernels.activate(y.data(), static_cast<Activation>(act), count, y.data());
    kernels.add(y.data(), fused.residual.data(), count, y.data());
    const Output expected = run_linear(kernels, fused, c.rows, {0, c.n});
    checks.expect(expected == y, "activation %d: fused and unfused differ", act);
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

}  // namespace ouzel::test
