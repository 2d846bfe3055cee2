// The body of `quantise`, compiled once for each instruction set in the namespace OUZEL_ISA. No contraction of products and
// sums, so that the wider file gives the same bytes.
#pragma once

#include "kernels/quantise/quantise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ouzel::kernels::OUZEL_ISA {
namespace {

// Sixteen rows side by side: every loop over `r` is one the compiler turns into vectors, and sums over the columns of a
// group run in ascending order in each row.
constexpr int kRows = 16, kGroup = 32, kSteps = 8;

struct Lanes {
  float v[kRows];
};

using Group = Lanes[kGroup];

constexpr float kStepsQ4[kSteps] = {-9.1f, -8.8f, -8.5f, -8.2f, -7.9f, -7.6f, -7.3f, -7.0f};
constexpr float kStepsQ8[kSteps] = {123.0f, 123.75f, 124.5f, 125.25f, 126.0f, 126.75f, 127.0f, 127.4f};
constexpr float kStepsQ4m[kSteps] = {14.0f, 14.4f, 14.8f, 15.1f, 15.4f, 15.7f, 16.1f, 16.5f};

float from_half(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// Nearest half, ties to even.
uint16_t to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (rest >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (rest < 0x38800000) {
    // Adding 0.5 puts a half's last place, 2^-24, at the sum's last bit: the addition rounds.
    const float moved = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(moved) - 0x3f000000u));
  }
  const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float half(float f) { return from_half(to_half(f)); }

// Nearest whole number, ties to even, for magnitudes below 2^22.
inline float whole(float f) { return (f + 12582912.0f) - 12582912.0f; }

inline float clamped(float f, float low, float high) {
  f = f > low ? f : low;
  return f < high ? f : high;
}

template <StoredType type>
float load(const void* source, size_t at) {
  if constexpr (type == StoredType::f32) return static_cast<const float*>(source)[at];
  const uint16_t bits = static_cast<const uint16_t*>(source)[at];
  return type == StoredType::bf16 ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16) : from_half(bits);
}

// Rows past the last are zeros; columns past the last repeat the group's first, so that they change no extremes.
template <StoredType type>
void load_group(const QuantiseArgs& a, size_t row, size_t column, Group& x) {
  const size_t rows = std::min<size_t>(kRows, a.rows - row), columns = std::min<size_t>(kGroup, a.columns - column);
  if (rows == kRows && columns == kGroup) {
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = (row + r) * a.columns + column;
      for (size_t k = 0; k < kGroup; ++k) x[k].v[r] = load<type>(a.source, at + k);
    }
    return;
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t k = 0; k < kGroup; ++k) {
      const size_t at = (row + r) * a.columns + column + (k < columns ? k : 0);
      x[k].v[r] = r < rows ? load<type>(a.source, at) : 0.0f;
    }
  }
}

void load_group(const QuantiseArgs& a, size_t row, size_t column, Group& x) {
  switch (a.type) {
    case StoredType::f32: return load_group<StoredType::f32>(a, row, column, x);
    case StoredType::bf16: return load_group<StoredType::bf16>(a, row, column, x);
    case StoredType::f16: return load_group<StoredType::f16>(a, row, column, x);
  }
}

void load_weights(const QuantiseArgs& a, size_t column, float (&w)[kGroup]) {
  for (size_t k = 0; k < kGroup; ++k) {
    const bool real = column + k < a.columns;
    w[k] = !real ? 0.0f : a.importance ? a.importance[column + k] : 1.0f;
  }
}

struct Found {
  Lanes scale, minimum;
};

void search_symmetric(const Group& x, const float (&w)[kGroup], const Lanes& top, const float* steps, float low,
                      float high, Lanes& found) {
  Lanes best;
  for (float& b : best.v) b = -1.0f;
  for (int i = 0; i < kSteps; ++i) {
    Lanes inverse, xl{}, ll{};
    for (int r = 0; r < kRows; ++r) inverse.v[r] = steps[i] / top.v[r];
    for (int k = 0; k < kGroup; ++k) {
      for (int r = 0; r < kRows; ++r) {
        const float code = whole(clamped(x[k].v[r] * inverse.v[r], low, high)), weighted = w[k] * code;
        const float a = x[k].v[r] * weighted, b = code * weighted;
        xl.v[r] = xl.v[r] + a;
        ll.v[r] = ll.v[r] + b;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const float gain = xl.v[r] * xl.v[r] / ll.v[r];
      if (gain > best.v[r]) best.v[r] = gain, found.v[r] = xl.v[r] / ll.v[r];
    }
  }
}

Found fit_symmetric(const Group& x, const float (&w)[kGroup], int bits, bool search) {
  Lanes top = x[0];
  for (int k = 1; k < kGroup; ++k) {
    for (int r = 0; r < kRows; ++r) {
      if (std::fabs(x[k].v[r]) > std::fabs(top.v[r])) top.v[r] = x[k].v[r];
    }
  }
  const bool wide = bits == 8;
  Found result{};
  for (int r = 0; r < kRows; ++r) {
    if (wide) top.v[r] = std::fabs(top.v[r]);
    // Adding zero makes one zero of two.
    result.scale.v[r] = half(top.v[r] / (wide ? 127.0f : -8.0f)) + 0.0f;
  }
  if (!search) return result;
  Lanes found = result.scale;
  search_symmetric(x, w, top, wide ? kStepsQ8 : kStepsQ4, wide ? -127.0f : -8.0f, wide ? 127.0f : 7.0f, found);
  for (int r = 0; r < kRows; ++r) {
    const float scale = half(found.v[r]);
    if (scale != 0 && std::isfinite(scale) && result.scale.v[r] != 0) result.scale.v[r] = scale;
  }
  return result;
}

void search_minimum(const Group& x, const float (&w)[kGroup], const Lanes& low, const Lanes& spread, Found& found) {
  Lanes best, sy{};
  float sw = 0.0f;
  for (int k = 0; k < kGroup; ++k) sw = sw + w[k];
  for (int r = 0; r < kRows; ++r) best.v[r] = -1.0f;
  for (int k = 0; k < kGroup; ++k) {
    for (int r = 0; r < kRows; ++r) {
      const float a = w[k] * (x[k].v[r] - low.v[r]);
      sy.v[r] = sy.v[r] + a;
    }
  }
  for (const float step : kStepsQ4m) {
    Lanes inverse, sl{}, ll{}, yl{};
    for (int r = 0; r < kRows; ++r) inverse.v[r] = step / spread.v[r];
    for (int k = 0; k < kGroup; ++k) {
      for (int r = 0; r < kRows; ++r) {
        const float y = x[k].v[r] - low.v[r];
        const float code = whole(clamped(y * inverse.v[r], 0.0f, 15.0f)), weighted = w[k] * code;
        const float b = code * weighted, c = y * weighted;
        sl.v[r] = sl.v[r] + weighted;
        ll.v[r] = ll.v[r] + b;
        yl.v[r] = yl.v[r] + c;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const float n = yl.v[r] - sy.v[r] * sl.v[r] / sw, d = ll.v[r] - sl.v[r] * sl.v[r] / sw;
      const float gain = n * n / d, s = n / d;
      if (!(gain > best.v[r])) continue;
      best.v[r] = gain;
      found.scale.v[r] = s;
      found.minimum.v[r] = (sy.v[r] - s * sl.v[r]) / sw + low.v[r];
    }
  }
}

Found fit_minimum(const Group& x, const float (&w)[kGroup], bool search) {
  Lanes low = x[0], high = x[0], spread;
  for (int k = 1; k < kGroup; ++k) {
    for (int r = 0; r < kRows; ++r) {
      low.v[r] = x[k].v[r] < low.v[r] ? x[k].v[r] : low.v[r];
      high.v[r] = x[k].v[r] > high.v[r] ? x[k].v[r] : high.v[r];
    }
  }
  Found result;
  for (int r = 0; r < kRows; ++r) {
    spread.v[r] = high.v[r] - low.v[r];
    result.scale.v[r] = half(spread.v[r] / 15.0f);
    result.minimum.v[r] = half(low.v[r]) + 0.0f;
  }
  if (!search) return result;
  Found found = result;
  search_minimum(x, w, low, spread, found);
  for (int r = 0; r < kRows; ++r) {
    const float scale = half(found.scale.v[r]), minimum = half(found.minimum.v[r]) + 0.0f;
    if (scale == 0 || !std::isfinite(scale) || !std::isfinite(minimum) || result.scale.v[r] == 0) continue;
    result.scale.v[r] = scale;
    result.minimum.v[r] = minimum;
  }
  return result;
}

void store_head(uint8_t* out, const Lanes& values) {
  for (int r = 0; r < kRows; ++r) {
    const uint16_t bits = to_half(values.v[r]);
    out[2 * r] = static_cast<uint8_t>(bits & 255);
    out[2 * r + 1] = static_cast<uint8_t>(bits >> 8);
  }
}

// Codes of the group: sixteen bytes of one column after another.
void encode(const Group& x, const Found& fit, int bits, bool minimum, size_t columns, uint8_t (&codes)[kGroup][kRows]) {
  const float zero = bits == 8 ? 128.0f : minimum ? 0.0f : 8.0f;
  const float low = bits == 8 ? -127.0f : minimum ? 0.0f : -8.0f;
  const float high = bits == 8 ? 127.0f : minimum ? 15.0f : 7.0f;
  Lanes inverse;
  for (int r = 0; r < kRows; ++r) inverse.v[r] = fit.scale.v[r] == 0 ? 0.0f : 1.0f / fit.scale.v[r];
  for (size_t k = 0; k < kGroup; ++k) {
    for (int r = 0; r < kRows; ++r) {
      const float centred = minimum ? x[k].v[r] - fit.minimum.v[r] : x[k].v[r];
      const float code = whole(clamped(centred * inverse.v[r], low, high)) + zero;
      codes[k][r] = static_cast<uint8_t>(static_cast<int>(k < columns ? code : zero));
    }
  }
}

void store_codes(const uint8_t (&codes)[kGroup][kRows], int bits, uint8_t* out) {
  const int half_group = kGroup / 2;
  for (int k = 0; k < (bits == 8 ? kGroup : half_group); ++k) {
    uint8_t* vector = out + k / 4 * 64 + k % 4;
    for (int r = 0; r < kRows; ++r) {
      vector[4 * r] = bits == 8 ? codes[k][r] : static_cast<uint8_t>(codes[k][r] | codes[k + half_group][r] << 4);
    }
  }
}

// The first row and column of the group that cannot be stored, as k + 32 * r; -1 when there is none.
int first_bad(const Group& x, const Found& fit, bool minimum, size_t rows, size_t columns) {
  for (size_t r = 0; r < rows; ++r) {
    size_t largest = 0;
    for (size_t k = 0; k < columns; ++k) {
      if (!std::isfinite(x[k].v[r])) return static_cast<int>(k + kGroup * r);
      if (std::fabs(x[k].v[r]) > std::fabs(x[largest].v[r])) largest = k;
    }
    const bool fits = std::isfinite(fit.scale.v[r]) && (!minimum || std::isfinite(fit.minimum.v[r]));
    if (!fits) return static_cast<int>(largest + kGroup * r);
  }
  return -1;
}

// Cheap and vectorised; the place is looked for only when this says that something is wrong.
bool all_good(const Group& x, const Found& fit, bool minimum) {
  Lanes sum{};
  for (int k = 0; k < kGroup; ++k) {
    for (int r = 0; r < kRows; ++r) sum.v[r] += x[k].v[r] * 0.0f;
  }
  bool good = true;
  for (int r = 0; r < kRows; ++r) {
    const float rest = sum.v[r] + fit.scale.v[r] * 0.0f + (minimum ? fit.minimum.v[r] * 0.0f : 0.0f);
    good = good && rest == 0.0f;
  }
  return good;
}

}  // namespace

int64_t quantise(const QuantiseArgs& a) {
  const size_t groups = (a.columns + kGroup - 1) / kGroup, size = quantised_block_bytes(a.bits, a.minimum);
  const size_t head = a.minimum ? 64 : 32;
  uint8_t* out = a.out;
  for (size_t row = 0; row < a.rows; row += kRows) {
    int64_t bad = -1;
    for (size_t g = 0; g < groups; ++g, out += size) {
      alignas(64) Group x;
      alignas(64) float w[kGroup];
      alignas(64) uint8_t codes[kGroup][kRows];
      const size_t column = g * kGroup, columns = std::min<size_t>(kGroup, a.columns - column);
      load_group(a, row, column, x);
      load_weights(a, column, w);
      const Found fit = a.minimum ? fit_minimum(x, w, a.search) : fit_symmetric(x, w, a.bits, a.search);
      if (!all_good(x, fit, a.minimum)) {
        const int place = first_bad(x, fit, a.minimum, std::min<size_t>(kRows, a.rows - row), columns);
        const int64_t at = static_cast<int64_t>((row + place / kGroup) * a.columns + column + place % kGroup);
        if (bad < 0 || at < bad) bad = at;
        continue;
      }
      store_head(out, fit.scale);
      if (a.minimum) store_head(out + 32, fit.minimum);
      encode(x, fit, a.bits, a.minimum, columns, codes);
      store_codes(codes, a.bits, out + head);
    }
    if (bad >= 0) return bad;
  }
  return -1;
}

}  // namespace ouzel::kernels::OUZEL_ISA
