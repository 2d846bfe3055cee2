// Root-mean-square and layer normalisation. Division and square root are IEEE's, so the bits are the same everywhere.
#pragma once

#include "base/f32x16.h"
#include "kernels/kernels.h"

namespace ouzel::OUZEL_ISA {

OUZEL_INLINE float inverse_root(float mean, float eps) { return 1.0f / __builtin_sqrtf(mean + eps); }

OUZEL_INLINE float sum_of_squares(const float* x, int64_t width) {
  f32x16 acc = zero();
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const f32x16 v = load(x + i);
    acc = fma(v, v, acc);
  }
  if (i < width) {
    const f32x16 v = load_first(x + i, width - i);
    acc = fma(v, v, acc);
  }
  return sum(acc);
}

// y = (x * (1 / sqrt(mean of squares + eps))) * w
OUZEL_INLINE void rms_norm_head(const float* x, const float* w, float eps, int64_t width, float* y) {
  const f32x16 scale = set(inverse_root(sum_of_squares(x, width) / static_cast<float>(width), eps));
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) store(y + i, mul(mul(load(x + i), scale), load(w + i)));
  if (i == width) return;
  const int64_t left = width - i;
  store_first(y + i, mul(mul(load_first(x + i, left), scale), load_first(w + i, left)), left);
}

static void rms_norm(const float* x, int64_t x_stride, const float* w, float eps, int64_t rows, int64_t heads,
                     int64_t width, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h)
      rms_norm_head(x + r * x_stride + h * width, w, eps, width, y + r * y_stride + h * width);
}

OUZEL_INLINE float plain_sum(const float* x, int64_t width) {
  f32x16 acc = zero();
  for (int64_t i = 0; i < width; i += 16) acc = add(acc, load_first(x + i, width - i));
  return sum(acc);
}

OUZEL_INLINE float sum_of_squared_distances(const float* x, float from, int64_t width) {
  const f32x16 mean = set(from);
  f32x16 acc = zero();
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const f32x16 d = sub(load(x + i), mean);
    acc = fma(d, d, acc);
  }
  if (i == width) return sum(acc);
  alignas(64) float distances[16] = {};  // lanes past the row must add zero, not the mean's square
  store_first(distances, sub(load_first(x + i, width - i), mean), width - i);
  const f32x16 d = load(distances);
  return sum(fma(d, d, acc));
}

// y = fma((x - mean) * (1 / sqrt(variance + eps)), w, b), the variance in a second pass over the row
static void layer_norm(const float* x, int64_t x_stride, const float* w, const float* b, float eps, int64_t rows,
                       int64_t width, float* y, int64_t y_stride) {
  const float count = static_cast<float>(width);
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * x_stride;
    float* out = y + r * y_stride;
    const float mean = plain_sum(in, width) / count;
    const f32x16 centre = set(mean);
    const f32x16 scale = set(inverse_root(sum_of_squared_distances(in, mean, width) / count, eps));
    for (int64_t i = 0; i < width; i += 16) {
      const int64_t left = width - i;
      const f32x16 normal = mul(sub(load_first(in + i, left), centre), scale);
      store_first(out + i, fma(normal, load_first(w + i, left), load_first(b + i, left)), left);
    }
  }
}

}  // namespace ouzel::OUZEL_ISA
