// Matrix product of quantised rows with packed weights. Tiles of rows pass over a block of panels that stays in the second
// cache; each result is one ascending chain over the groups, in registers from beginning to end.
#pragma once

#include <type_traits>

#include "kernels/linear/linear_impl.h"
#include "kernels/quantised/linear_packed_tiles.h"
#include "kernels/quantised/quantise_impl.h"

namespace ouzel::OUZEL_ISA {

// Vectors of sixteen lanes in one pass: two panels where a register holds sixteen lanes, else parts of one panel.
inline constexpr int kPassPanels = kVec == 16 && kRegisters >= 32 ? 2 : 1;
inline constexpr int kPassParts = kVec == 4 && kRegisters >= 32 ? 2 : 1;

inline constexpr int64_t kBlockBytes = int64_t{256} << 10;  // of packed weights that tiles of rows pass over

static int64_t linear_packed_columns(int64_t k, WeightType type) {
  const int64_t panels = kBlockBytes / packed_panel_bytes(type, k) / kPassPanels * kPassPanels;
  return larger(kPassPanels, panels) * kPanelRows;
}

struct LinearPackedRun {
  const LinearPackedArgs& a;
  int64_t groups = (a.k + kGroup - 1) / kGroup;

  template <WeightType T>
  void run() const {
    const int64_t columns = linear_packed_columns(a.k, T);
    for (int64_t n = a.n0; n < a.n1; n += columns) block<T>(n, smaller(columns, a.n1 - n));
  }

  // Few rows: weights come from memory, one straight stretch at a time, and are asked for ahead of time.
  template <WeightType T>
  void block(int64_t n, int64_t count) const {
    if (a.rows <= kFewRows && a.unit == kFewRows) return tile<T, kFewRows, true>(0, n, count);
    for (int64_t m = 0; m < a.rows; m += kManyRows) tile<T, kManyRows, false>(m, n, count);
  }

  // The tile's width is found once; then it goes over the columns.
  template <WeightType T, int R, bool Ahead>
  void tile(int64_t m, int64_t n, int64_t count) const {
    if constexpr (R > 1) {
      if (a.rows - m < R) return tile<T, R - 1, Ahead>(m, n, count);
    }
    constexpr int kPanels = Ahead ? 1 : kPassPanels;
    const float* x = a.x + m * groups * kQuantFloats;
    int64_t j = 0;
    if constexpr (kPanels > 1) {
      for (; j + kPanelRows < count; j += kPanels * kPanelRows) panels<T, R, kPanels, Ahead>(x, m, n + j, count - j);
    }
    for (; j < count; j += kPanelRows) panels<T, R, 1, Ahead>(x, m, n + j, count - j);
  }

  template <WeightType T, int R, int P, bool Ahead>
  void panels(const float* x, int64_t m, int64_t n, int64_t left) const {
    alignas(64) float sums[R * P * kPanelRows];
    const int64_t panel_bytes = groups * Packed<T>::kBytes;
    const uint8_t* w = static_cast<const uint8_t*>(a.w) + n / kPanelRows * panel_bytes;
    if constexpr (kParts == 1) {
      const PackedPass pass{w + Packed<T>::kHeader, w, panel_bytes, panel_bytes};
      packed_weights_tile<T, R, P, Ahead>(x, groups, pass, sums, P * kPanelRows);
    } else {
      for (int part = 0; part < kParts; part += kPassParts) {
        const PackedPass pass{w + Packed<T>::kHeader + part * 4 * kVec, w + part * 2 * kVec, 4 * kVec, 2 * kVec};
        packed_weights_tile<T, R, kPassParts, Ahead>(x, groups, pass, sums + part * kVec, kPanelRows);
      }
    }
    const int64_t count = smaller(left, P * kPanelRows);
    const LinearArgs plain = finishing();
    with_activation(a.act, LinearFinish{plain, m, R, n, count, sums, P * kPanelRows});
  }

  LinearArgs finishing() const {
    LinearArgs r{};
    r.bias = a.bias;
    r.residual = a.residual;
    r.residual_stride = a.residual_stride;
    r.y = a.y;
    r.y_stride = a.y_stride;
    return r;
  }
};

static void linear_packed_weights(const LinearPackedArgs& a) { with_packed(a.type, LinearPackedRun{a}); }

}  // namespace ouzel::OUZEL_ISA
