// Seeded inputs for the kernel tests: the same numbers on every machine, from integer arithmetic alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "tests/guarded.h"

namespace ouzel::test {

using Floats = Guarded<float>;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  uint32_t bits() {  // xorshift64*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 32);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }

  // Uniform in [-size, size), exact in float32 when size is a power of two.
  float uniform(float size = 1.0f) { return (static_cast<float>(bits() >> 8) * 0x1p-23f - 1.0f) * size; }

  void fill(Floats& to, float size = 1.0f) {
    for (int64_t i = 0; i < to.size(); ++i) to[i] = uniform(size);
  }

 private:
  uint64_t state_;
};

// The stored value in double precision, by the formats' definitions.
inline double decoded_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

inline double decoded_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// A matrix in a stored type, its last element against the guard page.
struct StoredMatrix {
  WeightType type;
  Guarded<float> floats;
  Guarded<uint16_t> halves;

  StoredMatrix(WeightType t, int64_t count, Random& random)
      : type(t), floats(t == WeightType::f32 ? count : 0), halves(t == WeightType::f32 ? 0 : count) {
    random.fill(floats);
    for (int64_t i = 0; i < halves.size(); ++i) {
      const uint32_t r = random.bits();
      const uint32_t exponent = t == WeightType::bf16 ? 120 + r % 8 : 8 + r % 8;
      const uint32_t shift = t == WeightType::bf16 ? 7 : 10;
      halves[i] = static_cast<uint16_t>((r & 0x80000000u) >> 16 | exponent << shift | (r >> 8 & ((1u << shift) - 1)));
    }
  }
  const void* data() const { return type == WeightType::f32 ? static_cast<const void*>(floats.data()) : halves.data(); }
  double at(int64_t i) const {
    if (type == WeightType::f32) return floats[i];
    return type == WeightType::bf16 ? decoded_bf16(halves[i]) : decoded_f16(halves[i]);
  }
};

// Scratch as the contract wants it: 64-byte aligned, private, and poisoned with NaN so that reading it unwritten shows.
class Scratch {
 public:
  explicit Scratch(int64_t floats) : memory_(static_cast<size_t>(floats) + 16, NAN) {}
  float* data() {
    const uintptr_t at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<float*>((at + 63) / 64 * 64);
  }

 private:
  std::vector<float> memory_;
};

}  // namespace ouzel::test
