// Row operations: norms, rotary, element by element, stored rows.
#pragma once

#include <algorithm>
#include <functional>

#include "tests/check.h"
#include "tests/kernel_inputs.h"
#include "tests/kernel_reference.h"
#include "tests/kernel_test_linear.h"

namespace ouzel::test {

inline constexpr int64_t kWidths[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 63, 128, 200};

inline Output copy_of(const Floats& f) { return Output(f.data(), f.data() + f.size()); }

// Runs `kernel(x, y)` with y apart and with y in x's place; both must agree. Returns the result.
inline Output apart_and_in_place(const Floats& x, Checks& checks, int64_t width,
                                 const std::function<void(const float*, float*)>& kernel) {
  Floats apart(x.size(), 5.0f), in_place(x.size());
  std::copy(x.data(), x.data() + x.size(), in_place.data());
  kernel(x.data(), apart.data());
  kernel(in_place.data(), in_place.data());
  const Output a = copy_of(apart), b = copy_of(in_place);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == 5.0f) continue;  // between rows
    checks.expect(a[i] == b[i], "width %ld: in place differs at %zu", static_cast<long>(width), i);
  }
  return a;
}

inline void append(Output& all, const Output& more) { all.insert(all.end(), more.begin(), more.end()); }

inline Output test_rms_norm(const Kernels& kernels, Checks& checks) {
  Output all;
  for (const int64_t width : kWidths) {
    Random random(static_cast<uint64_t>(width));
    const int64_t rows = 3, heads = width < 40 ? 4 : 1, stride = heads * width + 3;
    Floats x(rows * stride - 3), w(width);
    random.fill(x, 4.0f);
    random.fill(w);
    const float eps = 1e-6f;
    const Output y = apart_and_in_place(x, checks, width, [&](const float* in, float* out) {
      kernels.rms_norm(in, stride, w.data(), eps, rows, heads, width, out, stride);
    });
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = r * stride + h * width;
        double sum = 0;
        for (int64_t j = 0; j < width; ++j) sum += static_cast<double>(x[at + j]) * x[at + j];
        const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(eps));
        for (int64_t j = 0; j < width; ++j) {
          const double want = x[at + j] * scale * w[j];
          const double bound = (static_cast<double>(width) / 32 + 12) * kUnit * std::fabs(want);
          checks.expect(std::fabs(y[static_cast<size_t>(at + j)] - want) <= bound, "width %ld [%ld]: off by %.3g",
                        static_cast<long>(width), static_cast<long>(j), y[static_cast<size_t>(at + j)] - want);
        }
      }
    }
    append(all, y);
  }
  return all;
}

inline Output test_layer_norm(const Kernels& kernels, Checks& checks) {
  Output all;
  for (const int64_t width : kWidths) {
    Random random(static_cast<uint64_t>(width) + 50);
    const int64_t rows = 3, stride = width + 2;
    Floats x(rows * stride - 2), w(width), b(width);
    random.fill(x, 4.0f);
    random.fill(w);
    random.fill(b);
    const float eps = 1e-5f;
    const Output y = apart_and_in_place(x, checks, width, [&](const float* in, float* out) {
      kernels.layer_norm(in, stride, w.data(), b.data(), eps, rows, width, out, stride);
    });
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, spread = 0, size = 0;
      for (int64_t j = 0; j < width; ++j) mean += x[r * stride + j] / static_cast<double>(width);
      for (int64_t j = 0; j < width; ++j) {
        const double d = x[r * stride + j] - mean;
        spread += d * d / static_cast<double>(width);
        size = std::fmax(size, std::fabs(x[r * stride + j]));
      }
      const double scale = 1 / std::sqrt(spread + static_cast<double>(eps));
      for (int64_t j = 0; j < width; ++j) {
        const double normal = (x[r * stride + j] - mean) * scale;
        const double chain = static_cast<double>(width) / 16 + 12;
        // The mean is off by a few units of the largest element, which the scale enlarges.
        const double bound = chain * kUnit * (std::fabs(normal * w[j]) + size * scale * std::fabs(w[j])) +
                             2 * kUnit * std::fabs(b[j]);
        const double got = y[static_cast<size_t>(r * stride + j)], want = normal * w[j] + b[j];
        checks.expect(std::fabs(got - want) <= bound, "width %ld [%ld] is %.9g, expected %.9g within %.2g",
                      static_cast<long>(width), static_cast<long>(j), got, want, bound);
      }
    }
    append(all, y);
  }
  return all;
}

inline Output test_rotary(const Kernels& kernels, Checks& checks) {
  Output all;
  for (const int64_t half : {1, 8, 12, 15, 16, 17, 32, 36, 64}) {
    for (const bool pairs : {false, true}) {
      const int64_t head_dim = 2 * half + (half % 3 == 0 ? 5 : 0), rows = 3, heads = 2, stride = heads * head_dim + 1;
      Random random(static_cast<uint64_t>(half) + 900);
      Floats x(rows * stride - 1), cos(rows * half), sin(rows * half);
      random.fill(x);
      random.fill(cos);
      random.fill(sin);
      const Output y = apart_and_in_place(x, checks, half, [&](const float* in, float* out) {
        kernels.rotary(in, stride, cos.data(), sin.data(), half, rows, heads, head_dim, pairs, out, stride);
      });
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t j = 0; j < half; ++j) {
            const int64_t base = r * stride + h * head_dim;
            const int64_t first = base + (pairs ? 2 * j : j), second = base + (pairs ? 2 * j + 1 : half + j);
            const double a = x[first], b = x[second], c = cos[r * half + j], s = sin[r * half + j];
            const double bound = 3 * kUnit * (std::fabs(a) + std::fabs(b));
            checks.expect(std::fabs(y[static_cast<size_t>(first)] - (a * c - b * s)) <= bound &&
                              std::fabs(y[static_cast<size_t>(second)] - (b * c + a * s)) <= bound,
                          "half %ld pairs %d row %ld pair %ld", static_cast<long>(half), pairs, static_cast<long>(r),
                          static_cast<long>(j));
          }
          for (int64_t j = 2 * half; j < head_dim; ++j) {
            const int64_t at = r * stride + h * head_dim + j;
            checks.expect(y[static_cast<size_t>(at)] == x[at], "half %ld: column %ld is not copied",
                          static_cast<long>(half), static_cast<long>(j));
          }
        }
      }
      append(all, y);
    }
  }
  return all;
}

// Activations over their whole range; silu and the gelus must keep their relative accuracy in the negative tail.
inline Output test_activate(const Kernels& kernels, Checks& checks) {
  Output all;
  const int64_t n = 40001;
  Floats x(n);
  Random random(3);
  for (int64_t i = 0; i < n; ++i) x[i] = (static_cast<float>(i) - 20000.0f) * 0x1p-10f + random.uniform(0x1p-12f);
  const float special[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 100.0f, -100.0f, 1e30f, -1e30f};
  std::copy(std::begin(special), std::end(special), x.data());
  for (const Activation act : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
    const Output y = apart_and_in_place(x, checks, n, [&](const float* in, float* out) { kernels.activate(in, act, n, out); });
    for (int64_t i = 0; i < n; ++i) {
      const double want = activated(x[i], act), got = y[static_cast<size_t>(i)];
      checks.expect(std::fabs(got - want) <= activation_error(x[i], act), "activation %d of %.9g is %.9g, expected %.9g",
                    static_cast<int>(act), static_cast<double>(x[i]), got, want);
    }
    append(all, y);
  }
  const float nan = NAN;
  for (const Activation act : {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
    float y = 0;
    kernels.activate(&nan, act, 1, &y);
    checks.expect(std::isnan(y), "activation %d of NaN is %g", static_cast<int>(act), static_cast<double>(y));
  }
  return all;
}

inline Output test_elementwise(const Kernels& kernels, Checks& checks) {
  Output all;
  for (const int64_t n : kWidths) {
    Random random(static_cast<uint64_t>(n) + 70);
    Floats a(n), b(n);
    random.fill(a, 8.0f);
    random.fill(b, 8.0f);
    const Output sums =
        apart_and_in_place(a, checks, n, [&](const float* in, float* out) { kernels.add(in, b.data(), n, out); });
    const Output products =
        apart_and_in_place(a, checks, n, [&](const float* in, float* out) { kernels.mul(in, b.data(), n, out); });
    const Output gated =
        apart_and_in_place(a, checks, n, [&](const float* in, float* out) { kernels.silu_mul(in, b.data(), n, out); });
    for (int64_t i = 0; i < n; ++i) {
      const size_t at = static_cast<size_t>(i);
      const double gate = activated(a[i], Activation::silu) * b[i];
      checks.expect(sums[at] == a[i] + b[i] && products[at] == a[i] * b[i], "n %ld: add or mul", static_cast<long>(n));
      checks.expect(std::fabs(gated[at] - gate) <= 14 * kUnit * std::fabs(gate), "n %ld: silu_mul", static_cast<long>(n));
    }
    append(all, sums);
    append(all, products);
    append(all, gated);
  }
  return all;
}

// Every bit pattern of both half formats is decoded exactly.
inline Output test_decode_all(const Kernels& kernels, Checks& checks) {
  Output all;
  constexpr int64_t kPatterns = 65536;
  Guarded<uint16_t> w(kPatterns);
  Floats y(kPatterns);
  for (int64_t i = 0; i < kPatterns; ++i) w[i] = static_cast<uint16_t>(i);
  for (const WeightType type : {WeightType::bf16, WeightType::f16}) {
    kernels.decode_row(w.data(), type, kPatterns, y.data());
    for (int64_t i = 0; i < kPatterns; ++i) {
      const double want = type == WeightType::bf16 ? decoded_bf16(w[i]) : decoded_f16(w[i]);
      const bool same = std::isnan(want) ? std::isnan(y[i]) : y[i] == want && std::signbit(y[i]) == std::signbit(want);
      checks.expect(same, "type %d: 0x%04x is %.9g, expected %.9g", static_cast<int>(type), static_cast<unsigned>(i),
                    static_cast<double>(y[i]), want);
      if (!std::isnan(want)) all.push_back(y[i]);
    }
  }
  return all;
}

inline Output test_stored_rows(const Kernels& kernels, Checks& checks) {
  Output all;
  for (const int64_t n : kWidths) {
    for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::f16}) {
      Random random(static_cast<uint64_t>(n) + 40);
      const StoredMatrix w(type, n, random);
      Floats decoded(n), sum(n);
      random.fill(sum);
      const Output before = copy_of(sum);
      kernels.decode_row(w.data(), type, n, decoded.data());
      kernels.axpy_row(0.375f, w.data(), type, n, sum.data());
      for (int64_t i = 0; i < n; ++i) {
        checks.expect(decoded[i] == w.at(i), "n %ld: decode_row", static_cast<long>(n));
        const float want = std::fmaf(0.375f, decoded[i], before[static_cast<size_t>(i)]);
        checks.expect(sum[i] == want, "n %ld: axpy_row", static_cast<long>(n));
      }
      append(all, copy_of(decoded));
      append(all, copy_of(sum));
    }
  }
  return all;
}

inline Output test_all_finite(const Kernels& kernels, Checks& checks) {
  for (int64_t n = 0; n <= 40; ++n) {
    Floats x(n, -3e38f);
    checks.expect(kernels.all_finite(x.data(), n), "%ld finite numbers are not", static_cast<long>(n));
    for (int64_t i = 0; i < n; ++i) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        x[i] = bad;
        checks.expect(!kernels.all_finite(x.data(), n), "%g at %ld of %ld is missed", static_cast<double>(bad),
                      static_cast<long>(i), static_cast<long>(n));
      }
      x[i] = 0.0f;
    }
  }
  return {};
}

inline Output test_peaks(const Kernels& kernels, Checks& checks) {
  checks.expect(kernels.fma_loop(1000) >= 2000.0, "fma_loop counts too few operations");
  Output all;
  for (const int64_t n : {1, 127, 128, 1000, 5000}) {
    Floats x(n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] = static_cast<float>(i % 100);
    all.push_back(kernels.read_loop(x.data(), n));
    checks.expect(all.back() == sum, "read_loop of %ld: %.9g instead of %.9g", static_cast<long>(n),
                  static_cast<double>(all.back()), sum);
  }
  return all;
}

}  // namespace ouzel::test
