// exp and the activation functions on f32x16, of our own, so that every machine gives the same bits.
#pragma once

#include "base/f32x16.h"

namespace ouzel::OUZEL_ISA {

// e^x for x <= 88.37: within 2e-7 relative, exactly 1 at 0, and 0 below -87.33 (no denormal results). NaN gives NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2: adding 1.5 * 2^23 leaves n in the low bits, the second constant is ln 2 minus the
// first, and the polynomial is the minimax one of relative error 3e-9.
OUZEL_INLINE f32x16 exp_bounded(const f32x16& x) {
  const f32x16 shifter = set(12582912.0f);
  const f32x16 shifted = fma(x, set(1.44269504088896341f), shifter);
  const f32x16 n = sub(shifted, shifter);
  f32x16 r = fma(n, set(-0.693145751953125f), x);
  r = fma(n, set(-1.42860682029e-6f), r);
  f32x16 p = set(0.001381455920636654f);
  p = fma(p, r, set(0.008368736132979393f));
  p = fma(p, r, set(0.04166838899254799f));
  p = fma(p, r, set(0.1666652113199234f));
  p = fma(p, r, set(0.4999999403953552f));
  p = fma(mul(r, r), p, r);
  p = add(p, set(1.0f));
  p = mul(p, to_exponent(shifted));
  return select_less(x, set(-87.33f), zero(), p);
}

// e^x for all x; infinite above 88.37.
OUZEL_INLINE f32x16 exp(const f32x16& x) {
  const f32x16 limit = set(88.37f);
  return select_less(limit, x, set(__builtin_inff()), exp_bounded(min(limit, x)));
}

// x / (1 + e^-x)
OUZEL_INLINE f32x16 silu(const f32x16& x) { return div(x, add(set(1.0f), exp(negate(x)))); }

// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x / (1 + e^-2u): no cancellation for negative x.
OUZEL_INLINE f32x16 gelu_tanh(const f32x16& x) {
  const f32x16 slope = fma(mul(x, x), set(-0.0713548162726f), set(-1.5957691216057308f));
  return div(x, add(set(1.0f), exp(mul(x, slope))));
}

// erfc(x / sqrt 2) / 2 for x >= 0 (clamped to 13.4): e^(-x^2 / 2) times a polynomial in t = 1 / (1 + 0.3 x / sqrt 2), fitted
// to a relative error of 2e-8. The rounding error of x^2 is put back, because e^(-x^2 / 2) would enlarge it.
OUZEL_INLINE f32x16 half_erfc(const f32x16& any) {
  const f32x16 x = min(set(13.4f), any);
  const f32x16 t = div(set(1.0f), fma(x, set(0.212132034355964257f), set(1.0f)));
  f32x16 p = set(-0.06471698731184006f);
  p = fma(p, t, set(0.24254798889160156f));
  p = fma(p, t, set(-0.2556127607822418f));
  p = fma(p, t, set(0.2731970250606537f));
  p = fma(p, t, set(-0.04681530222296715f));
  p = fma(p, t, set(0.10721801221370697f));
  p = fma(p, t, set(0.07424124330282211f));
  p = fma(p, t, set(0.08534596115350723f));
  p = fma(p, t, set(0.08459480851888657f));
  const f32x16 square = mul(x, x);
  const f32x16 half_lost = mul(fma(x, x, negate(square)), set(-0.5f));
  const f32x16 power = exp_bounded(mul(square, set(-0.5f)));
  return mul(mul(p, t), fma(half_lost, power, power));
}

// x (1 + erf(x / sqrt 2)) / 2, through erfc so that the negative tail keeps its relative accuracy.
OUZEL_INLINE f32x16 gelu_erf(const f32x16& x) {
  const f32x16 tail = half_erfc(max(x, negate(x)));
  const f32x16 part = mul(x, tail);
  return select_less(zero(), x, sub(x, part), part);
}

}  // namespace ouzel::OUZEL_ISA
