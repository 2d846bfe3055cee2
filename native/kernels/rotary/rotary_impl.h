// Rotary position embedding of heads: (a, b) becomes (fma(-b, sin, a * cos), fma(a, sin, b * cos)).
#pragma once

#include "base/f32x16.h"
#include "kernels/kernels.h"

namespace ouzel::OUZEL_ISA {

OUZEL_INLINE f32x16 turn_first(const f32x16& a, const f32x16& b, const f32x16& c, const f32x16& s) {
  return fma(negate(b), s, mul(a, c));
}
OUZEL_INLINE f32x16 turn_second(const f32x16& a, const f32x16& b, const f32x16& c, const f32x16& s) {
  return fma(a, s, mul(b, c));
}

OUZEL_INLINE void rotate_halves(const float* x, const float* cos, const float* sin, int64_t half, float* y) {
  for (int64_t j = 0; j < half; j += 16) {
    const int64_t left = half - j;
    const f32x16 a = load_first(x + j, left), b = load_first(x + half + j, left);
    const f32x16 c = load_first(cos + j, left), s = load_first(sin + j, left);
    store_first(y + j, turn_first(a, b, c, s), left);
    store_first(y + half + j, turn_second(a, b, c, s), left);
  }
}

OUZEL_INLINE void rotate_pairs(const float* x, const float* cos, const float* sin, int64_t half, float* y) {
  for (int64_t j = 0; j < half; j += 16) {
    const int64_t count = half - j < 16 ? half - j : 16;
    alignas(64) float first[16] = {}, second[16] = {};
    for (int64_t i = 0; i < count; ++i) {
      first[i] = x[2 * (j + i)];
      second[i] = x[2 * (j + i) + 1];
    }
    const f32x16 a = load(first), b = load(second);
    const f32x16 c = load_first(cos + j, count), s = load_first(sin + j, count);
    store(first, turn_first(a, b, c, s));
    store(second, turn_second(a, b, c, s));
    for (int64_t i = 0; i < count; ++i) {
      y[2 * (j + i)] = first[i];
      y[2 * (j + i) + 1] = second[i];
    }
  }
}

static void rotary(const float* x, int64_t x_stride, const float* cos, const float* sin, int64_t half, int64_t rows,
                   int64_t heads, int64_t head_dim, bool pairs, float* y, int64_t y_stride) {
  const int64_t rest = head_dim - 2 * half;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const float* in = x + r * x_stride + h * head_dim;
      float* out = y + r * y_stride + h * head_dim;
      if (pairs) {
        rotate_pairs(in, cos + r * half, sin + r * half, half, out);
      } else {
        rotate_halves(in, cos + r * half, sin + r * half, half, out);
      }
      if (rest > 0 && in != out) memcpy(out + 2 * half, in + 2 * half, static_cast<size_t>(rest) * sizeof(float));
    }
  }
}

}  // namespace ouzel::OUZEL_ISA
