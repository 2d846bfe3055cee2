// The two passes of the resize kernel. The inner loops run over neighbouring bytes with one weight, which compilers
// vectorise; sums are exact in int32, so the order and the width do not matter.
#include "kernels/resize/resize.h"

#include <algorithm>
#include <cstring>

namespace ouzel::kernels {
namespace {

constexpr int32_t kHalf = 1 << (kResizePrecisionBits - 1);

inline uint8_t to_byte(int32_t sum) {
  const int32_t value = sum >> kResizePrecisionBits;
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Bytes summed at once; a multiple of every vector width, small enough for the sums to stay in registers.
constexpr int kSpan = 32;

// out[j] = the weighted sum of kSpan neighbouring bytes of `count` rows that lie `row_bytes` apart.
inline void weigh_span(const uint8_t* rows, size_t row_bytes, const int32_t* weights, int count, uint8_t* out) {
  int32_t sums[kSpan];
  for (int j = 0; j < kSpan; ++j) sums[j] = kHalf;
  for (int t = 0; t < count; ++t) {
    const uint8_t* row = rows + t * row_bytes;
    const int32_t weight = weights[t];
    for (int j = 0; j < kSpan; ++j) sums[j] += row[j] * weight;
  }
  for (int j = 0; j < kSpan; ++j) out[j] = to_byte(sums[j]);
}

inline void weigh_tail(const uint8_t* rows, size_t row_bytes, const int32_t* weights, int count, int bytes,
                       uint8_t* out) {
  for (int j = 0; j < bytes; ++j) {
    int32_t sum = kHalf;
    for (int t = 0; t < count; ++t) sum += rows[t * row_bytes + j] * weights[t];
    out[j] = to_byte(sum);
  }
}

void weigh_row(const uint8_t* rows, size_t row_bytes, const int32_t* weights, int count, int bytes, uint8_t* out) {
  int j = 0;
  for (; j + kSpan <= bytes; j += kSpan) weigh_span(rows + j, row_bytes, weights, count, out + j);
  if (j < bytes) weigh_tail(rows + j, row_bytes, weights, count, bytes - j, out + j);
}

// tile[(x * channels + c) * kResizeTileRows + r] = src[r][x][c]; rows past `rows` keep what they held and are not used.
void turn_tile(const uint8_t* src, int rows, size_t row_bytes, uint8_t* tile) {
  for (int r = 0; r < rows; ++r) {
    const uint8_t* row = src + r * row_bytes;
    for (size_t i = 0; i < row_bytes; ++i) tile[i * kResizeTileRows + r] = row[i];
  }
}

}  // namespace

void resize_horizontal_u8(const uint8_t* src, int rows, int src_w, int channels, const ResizeTaps& taps, uint8_t* dst,
                          uint8_t* scratch) {
  // Turned on its side, a tile of sixteen rows makes neighbours in memory of the values that share a weight.
  const size_t src_row = static_cast<size_t>(src_w) * channels;
  const int out_w = static_cast<int>(taps.first.size());
  const size_t dst_row = static_cast<size_t>(out_w) * channels;
  const size_t pixel = static_cast<size_t>(channels) * kResizeTileRows;
  uint8_t* column = scratch + src_row * kResizeTileRows;
  std::memset(scratch, 0, src_row * kResizeTileRows);
  for (int row = 0; row < rows; row += kResizeTileRows) {
    const int count = std::min(kResizeTileRows, rows - row);
    turn_tile(src + row * src_row, count, src_row, scratch);
    for (int x = 0; x < out_w; ++x) {
      const int32_t* weights = taps.weights.data() + static_cast<size_t>(x) * taps.stride;
      weigh_row(scratch + taps.first[x] * pixel, pixel, weights, taps.count[x], static_cast<int>(pixel), column);
      uint8_t* out = dst + row * dst_row + static_cast<size_t>(x) * channels;
      for (int r = 0; r < count; ++r) {
        for (int c = 0; c < channels; ++c) out[r * dst_row + c] = column[c * kResizeTileRows + r];
      }
    }
  }
}

void resize_vertical_u8(const uint8_t* src, int row_bytes, const ResizeTaps& taps, int row_begin, int row_end,
                        uint8_t* dst) {
  const size_t stride = static_cast<size_t>(row_bytes);
  for (int y = row_begin; y < row_end; ++y) {
    const int32_t* weights = taps.weights.data() + static_cast<size_t>(y) * taps.stride;
    weigh_row(src + taps.first[y] * stride, stride, weights, taps.count[y], row_bytes, dst + y * stride);
  }
}

void resize_u8(const uint8_t* src, int h, int w, int c, uint8_t* dst, int dst_h, int dst_w, ResizeFilter filter) {
  const size_t dst_row = static_cast<size_t>(dst_w) * c;
  std::vector<uint8_t> middle;
  if (dst_w != w) {
    const ResizeTaps taps = resize_taps(w, dst_w, filter);
    std::vector<uint8_t> scratch(resize_scratch(w, c));
    uint8_t* out = dst;
    if (dst_h != h) {
      middle.resize(h * dst_row);
      out = middle.data();
    }
    resize_horizontal_u8(src, h, w, c, taps, out, scratch.data());
    src = out;
  }
  if (dst_h != h) {
    resize_vertical_u8(src, static_cast<int>(dst_row), resize_taps(h, dst_h, filter), 0, dst_h, dst);
  } else if (dst_w == w) {
    std::memcpy(dst, src, h * dst_row);
  }
}

}  // namespace ouzel::kernels
