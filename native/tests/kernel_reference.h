// The meaning of the kernels in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/kernels.h"

namespace ouzel::test {

inline constexpr double kUnit = 0x1p-24;  // largest relative error of one float32 rounding

inline double activated(double x, Activation act) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::gelu_tanh: {
      const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case Activation::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return NAN;
}

// Allowed error of an activation whose argument is exact: a few roundings, and those of the exponent's argument, which
// exp multiplies by its size.
inline double activation_error(double x, Activation act) {
  if (act == Activation::none) return 0;
  const double u = 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double exponent = act == Activation::gelu_tanh ? std::fabs(u) : 0;
  const double floor = 0x1p-120;  // results are flushed to zero below about 1e-38
  return (12 + 4 * exponent) * kUnit * std::fabs(activated(x, act)) + floor;
}

// One row of attention: q [head_dim], keys and values as rows. `bound` receives the allowed error of each result: that of
// the scores acts on the weights as a relative error, twice (numerator and denominator); then the sums over the keys.
inline std::vector<double> attention_row(const float* q, const std::vector<std::vector<float>>& keys,
                                         const std::vector<std::vector<float>>& values, int64_t seen, double scale,
                                         std::vector<double>* bound) {
  const size_t head_dim = keys[0].size(), value_dim = values[0].size();
  std::vector<double> p(static_cast<size_t>(seen)), out(value_dim, 0.0);
  double most = -INFINITY, total = 0, score_error = 0, largest = 0;
  for (size_t s = 0; s < p.size(); ++s) {
    double sum = 0, size = 0;
    for (size_t d = 0; d < head_dim; ++d) {
      sum += static_cast<double>(q[d]) * keys[s][d];
      size += std::fabs(static_cast<double>(q[d]) * keys[s][d]);
    }
    p[s] = sum * scale;
    score_error = std::fmax(score_error, (static_cast<double>(head_dim) + 3) * kUnit * size * std::fabs(scale));
    most = std::fmax(most, p[s]);
  }
  for (double& weight : p) total += weight = std::exp(weight - most);
  for (size_t j = 0; j < value_dim; ++j) {
    for (size_t s = 0; s < p.size(); ++s) out[j] += p[s] / total * values[s][j];
    for (size_t s = 0; s < p.size(); ++s) largest = std::fmax(largest, std::fabs(static_cast<double>(values[s][j])));
  }
  const double chain = static_cast<double>(seen) + 32.0;  // a block's keys follow one another
  bound->assign(value_dim, (2 * score_error + (chain + 12) * kUnit) * largest);
  return out;
}

}  // namespace ouzel::test
