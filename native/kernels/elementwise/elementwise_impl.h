// Operations on every element of a row of numbers. y may be x, and b may be y.
#pragma once

#include "base/f32x16_math.h"
#include "kernels/kernels.h"

namespace ouzel::OUZEL_ISA {

template <class F>
OUZEL_INLINE void for_lanes(const float* x, int64_t n, float* y, const F& f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(x + i), i, 16));
  if (i < n) store_first(y + i, f(load_first(x + i, n - i), i, n - i), n - i);
}

template <Activation A>
OUZEL_INLINE f32x16 activation(const f32x16& x) {
  if constexpr (A == Activation::gelu_tanh) return gelu_tanh(x);
  if constexpr (A == Activation::gelu_erf) return gelu_erf(x);
  if constexpr (A == Activation::silu) return silu(x);
  return x;
}

// Calls f.template run<A>() for the activation given at run time.
template <class F>
OUZEL_INLINE void with_activation(Activation act, const F& f) {
  switch (act) {
    case Activation::none:
      return f.template run<Activation::none>();
    case Activation::gelu_tanh:
      return f.template run<Activation::gelu_tanh>();
    case Activation::gelu_erf:
      return f.template run<Activation::gelu_erf>();
    case Activation::silu:
      return f.template run<Activation::silu>();
  }
}

struct Activate {
  const float* x;
  int64_t n;
  float* y;

  template <Activation A>
  void run() const {
    for_lanes(x, n, y, [](const f32x16& a, int64_t, int64_t) { return activation<A>(a); });
  }
};

static void activate(const float* x, Activation act, int64_t n, float* y) { with_activation(act, Activate{x, n, y}); }

static void silu_mul(const float* x, const float* up, int64_t n, float* y) {
  for_lanes(x, n, y, [up](const f32x16& a, int64_t i, int64_t left) { return mul(silu(a), load_first(up + i, left)); });
}

static void add_rows(const float* a, const float* b, int64_t n, float* y) {
  for_lanes(a, n, y, [b](const f32x16& x, int64_t i, int64_t left) { return add(x, load_first(b + i, left)); });
}

static void mul_rows(const float* a, const float* b, int64_t n, float* y) {
  for_lanes(a, n, y, [b](const f32x16& x, int64_t i, int64_t left) { return mul(x, load_first(b + i, left)); });
}

// Zero times a finite number is zero, and times any other NaN.
static bool all_finite(const float* x, int64_t n) {
  f32x16 acc = zero();
  for (int64_t i = 0; i < n; i += 16) acc = fma(load_first(x + i, n - i), zero(), acc);
  return sum(acc) == 0.0f;
}

}  // namespace ouzel::OUZEL_ISA
