// Packed weights: the layout of a block of sixteen rows and 32 columns, its decoding, and rows quantised for them.
#pragma once

#include "base/f32x16.h"
#include "kernels/kernels.h"

namespace ouzel::OUZEL_ISA {

inline constexpr int kGroup = static_cast<int>(kGroupColumns);
inline constexpr int kSteps = kGroup / 4;  // of four columns in a group

// A block: sixteen scales, (sixteen minima,) then vectors of 64 bytes: four columns of each row. Vector j of bytes holds
// columns 4j .. 4j + 3; of nibbles, columns 4j .. in the low halves and 16 + 4j .. in the high ones.
template <WeightType T>
struct Packed {
  static constexpr bool kNibbles = T != WeightType::q8;
  static constexpr bool kMinimum = T == WeightType::q4m;
  static constexpr int64_t kHeader = kMinimum ? 64 : 32;
  static constexpr int64_t kBytes = kHeader + (kNibbles ? 256 : 512);
  static constexpr int kCentre = T == WeightType::q8 ? 128 : kMinimum ? 0 : 8;
};

// A group of a tile of quantised rows: see QuantiseArgs.
OUZEL_INLINE int32_t load_int(const float* p) {
  int32_t value;
  memcpy(&value, p, sizeof(value));
  return value;
}

// Calls f.template run<T>() for a packed type.
template <class F>
OUZEL_INLINE void with_packed(WeightType type, const F& f) {
  if (type == WeightType::q8) return f.template run<WeightType::q8>();
  if (type == WeightType::q4) return f.template run<WeightType::q4>();
  if (type == WeightType::q4m) return f.template run<WeightType::q4m>();
}

struct DecodePacked {
  const uint8_t* w;  // of the row's panel
  int64_t row;       // in its panel
  int64_t k;
  float* y;

  template <WeightType T>
  void run() const {
    for (int64_t at = 0; at < k; at += kGroup) {
      alignas(64) float values[kGroup];
      const uint8_t* block = w + at / kGroup * Packed<T>::kBytes;
      decode<T>(block, values);
      memcpy(y + at, values, static_cast<size_t>(k - at < kGroup ? k - at : kGroup) * sizeof(float));
    }
  }

  template <WeightType T>
  void decode(const uint8_t* block, float* values) const {
    alignas(64) float scales[16], minima[16] = {};
    store(scales, load_halves(block));
    if constexpr (Packed<T>::kMinimum) store(minima, load_halves(block + 32));
    const uint8_t* bytes = block + Packed<T>::kHeader + row * 4;
    for (int i = 0; i < kGroup; ++i) {
      const int place = Packed<T>::kNibbles ? i % 16 : i;
      const int byte = bytes[place / 4 * 64 + place % 4];
      const int code = !Packed<T>::kNibbles ? byte : i < 16 ? byte & 15 : byte >> 4;
      const float value = static_cast<float>(code - Packed<T>::kCentre) * scales[row];
      values[i] = Packed<T>::kMinimum ? value + minima[row] : value;
    }
  }

  OUZEL_INLINE f32x16 load_halves(const uint8_t* p) {
    alignas(64) uint16_t halves[16];
    memcpy(halves, p, sizeof(halves));
    f32x16 r;
    OUZEL_UNROLL
    for (int i = 0; i < kParts; ++i) r.part[i] = load_vec_f16(halves + i * kVec);
    return r;
  }
};

// Row `row` of a packed matrix with k columns, as float32.
static void decode_packed(const void* w, WeightType type, int64_t k, int64_t row, float* y) {
  const int64_t panel = row / kPanelRows * packed_panel_bytes(type, k);
  with_packed(type, DecodePacked{static_cast<const uint8_t*>(w) + panel, row % kPanelRows, k, y});
}

}  // namespace ouzel::OUZEL_ISA
