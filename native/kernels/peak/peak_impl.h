// The machine's own peaks on one thread, to print beside what kernels reach.
#pragma once

#include "base/dot.h"
#include "base/f32x16.h"

namespace ouzel::OUZEL_ISA {

// Independent chains of one register each: enough to hide four cycles of latency on two units.
inline constexpr int kPeakChains = 12;

// Returns the floating-point operations done (two for each multiply-add).
static double fma_loop(int64_t iterations) {
  volatile float seed = 0.5f;
  const vec factor = set_vec(seed), term = set_vec(seed);
  vec chain[kPeakChains];
  OUZEL_UNROLL
  for (int i = 0; i < kPeakChains; ++i) chain[i] = set_vec(static_cast<float>(i));
  for (int64_t it = 0; it < iterations; ++it) {
    OUZEL_UNROLL
    for (int i = 0; i < kPeakChains; ++i) chain[i] = fma(chain[i], factor, term);
  }
  vec total = chain[0];
  OUZEL_UNROLL
  for (int i = 1; i < kPeakChains; ++i) total = add(total, chain[i]);
  alignas(64) float lanes[kVec];
  store_vec(lanes, total);
  seed = lanes[0];  // the result is used, so the loop stays
  return 2.0 * kVec * kPeakChains * static_cast<double>(iterations);
}

// As fma_loop, for steps of DotNibble: eight integer operations for every lane, begun anew after the eight steps of a group.
static double dot_loop(int64_t iterations) {
  volatile float seed = 0x1.010102p-125f;  // codes of 1 or so
  const float codes = seed;
  const bvec x = set_codes(&codes);
  const DotNibble::Weights w = DotNibble::prepare(low_nibbles(x));
  ivec total[kPeakChains];
  DotNibble::Sum chain[kPeakChains];
  OUZEL_UNROLL
  for (int i = 0; i < kPeakChains; ++i) chain[i] = DotNibble::begin(i);
  for (int64_t it = 0; it < iterations; ++it) {
    OUZEL_UNROLL
    for (int i = 0; i < kPeakChains; ++i) chain[i] = DotNibble::step(chain[i], w, x);
  }
  float sum = 0;
  alignas(64) float lanes[kVec];
  for (int i = 0; i < kPeakChains; ++i) {
    total[i] = DotNibble::end(chain[i], 0);
    store_vec(lanes, int_to_float(total[i]));
    sum += lanes[0];
  }
  seed = sum;
  return 8.0 * kVec * kPeakChains * static_cast<double>(iterations);
}

// The sum of n floats: every byte is read once, as four streams, each in order; one stream alone is slower.
static float read_loop(const float* x, int64_t n) {
  constexpr int kStreams = 4;
  const int64_t quarter = n / kStreams / 16 * 16;
  f32x16 total[kStreams];
  OUZEL_UNROLL
  for (int i = 0; i < kStreams; ++i) total[i] = zero();
  for (int64_t at = 0; at < quarter; at += 16) {
    OUZEL_UNROLL
    for (int i = 0; i < kStreams; ++i) total[i] = add(total[i], load(x + i * quarter + at));
  }
  for (int64_t at = kStreams * quarter; at < n; at += 16) total[0] = add(total[0], load_first(x + at, n - at));
  OUZEL_UNROLL
  for (int i = 1; i < kStreams; ++i) total[0] = add(total[0], total[i]);
  return sum(total[0]);
}

}  // namespace ouzel::OUZEL_ISA
