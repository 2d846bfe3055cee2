// Weights of the resize kernel. Double arithmetic whose every step is rounded on its own: a compiler that fuses a
// multiplication with an addition would give other last bits, hence now and then another weight, on some machines only.
#include <algorithm>

#include "kernels/resize/resize.h"

namespace ouzel::kernels {
namespace {

constexpr double kPi = 3.141592653589793;

// Stores a product before it is used. The volatile store is what keeps the compiler from fusing; weights are few.
double product(double a, double b) {
  volatile double stored = a * b;
  return stored;
}

double magnitude(double x) { return x < 0.0 ? -x : x; }

double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double triangle(double x) {
  x = magnitude(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
  constexpr double a = -0.5;
  x = magnitude(x);
  if (x < 1.0) return product(product(product(a + 2.0, x) - (a + 3.0), x), x) + 1.0;
  if (x < 2.0) return product(product(product(x - 5.0, x) + 8.0, x) - 4.0, a);
  return 0.0;
}

// sin(pi x) / (pi x) for 0 <= x < 3: reduction to half a turn and a Taylor polynomial that is exact to a double's last
// bit there. libm's sin differs between systems.
double sinc(double x) {
  static constexpr double kSine[] = {
      1.0 / 1.0,
      -1.0 / 6.0,
      1.0 / 120.0,
      -1.0 / 5040.0,
      1.0 / 362880.0,
      -1.0 / 39916800.0,
      1.0 / 6227020800.0,
      -1.0 / 1307674368000.0,
      1.0 / 355687428096000.0,
      -1.0 / 121645100408832000.0,
      1.0 / 51090942171709440000.0,
      -1.0 / 25852016738884976640000.0,
  };
  if (x == 0.0) return 1.0;
  const int turns = static_cast<int>(x + 0.5);
  const double y = product(x - turns, kPi);
  const double square = product(y, y);
  constexpr int kLast = static_cast<int>(sizeof(kSine) / sizeof(kSine[0])) - 1;
  double series = kSine[kLast];
  for (int i = kLast - 1; i >= 0; --i) series = product(series, square) + kSine[i];
  const double sine = product(product(y, series), turns % 2 == 0 ? 1.0 : -1.0);
  return sine / product(x, kPi);
}

double lanczos3(double x) {
  x = magnitude(x);
  return x < 3.0 ? product(sinc(x), sinc(x / 3.0)) : 0.0;
}

struct Shape {
  double (*function)(double);
  double half_width;
};

Shape shape_of(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::box: return {box, 0.5};
    case ResizeFilter::bilinear: return {triangle, 1.0};
    case ResizeFilter::lanczos: return {lanczos3, 3.0};
    default: return {cubic, 2.0};
  }
}

ResizeTaps nearest_taps(int source, int out) {
  ResizeTaps taps;
  taps.stride = 1;
  const double scale = static_cast<double>(source) / out;
  double place = product(0.5, scale);  // added up, as the reference does: its rounding decides at exact borders
  for (int i = 0; i < out; ++i, place += scale) taps.first.push_back(std::min(static_cast<int>(place), source - 1));
  taps.count.assign(out, 1);
  taps.weights.assign(out, 1 << kResizePrecisionBits);
  return taps;
}

int32_t fixed_point(double weight) {
  const double scaled = weight * (1 << kResizePrecisionBits);  // exact: a power of two
  return static_cast<int32_t>(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
}

}  // namespace

bool parse_resize_filter(std::string_view name, ResizeFilter* filter) {
  static constexpr struct {
    std::string_view name;
    ResizeFilter filter;
  } kNames[] = {{"nearest", ResizeFilter::nearest},
                {"box", ResizeFilter::box},
                {"bilinear", ResizeFilter::bilinear},
                {"bicubic", ResizeFilter::bicubic},
                {"lanczos", ResizeFilter::lanczos}};
  for (const auto& row : kNames) {
    if (row.name == name) {
      *filter = row.filter;
      return true;
    }
  }
  return false;
}

ResizeTaps resize_taps(int source, int out, ResizeFilter filter) {
  if (filter == ResizeFilter::nearest) return nearest_taps(source, out);
  const Shape shape = shape_of(filter);
  const double scale = static_cast<double>(source) / out;
  const double widened = std::max(scale, 1.0);
  const double support = product(shape.half_width, widened);
  const double inverse = 1.0 / widened;

  ResizeTaps taps;
  taps.first.resize(out);
  taps.count.resize(out);
  for (int i = 0; i < out; ++i) {
    const double centre = product(i + 0.5, scale);
    taps.first[i] = std::max(static_cast<int>(centre - support + 0.5), 0);
    taps.count[i] = std::min(static_cast<int>(centre + support + 0.5), source) - taps.first[i];
    taps.stride = std::max(taps.stride, taps.count[i]);
  }
  taps.weights.assign(static_cast<size_t>(out) * taps.stride, 0);
  std::vector<double> values(taps.stride);
  for (int i = 0; i < out; ++i) {
    const double centre = product(i + 0.5, scale);
    double total = 0.0;
    for (int t = 0; t < taps.count[i]; ++t) {
      values[t] = shape.function(product(t + taps.first[i] - centre + 0.5, inverse));
      total += values[t];
    }
    int32_t* weights = taps.weights.data() + static_cast<size_t>(i) * taps.stride;
    for (int t = 0; t < taps.count[i]; ++t) weights[t] = fixed_point(total == 0.0 ? values[t] : values[t] / total);
  }
  return taps;
}

}  // namespace ouzel::kernels
