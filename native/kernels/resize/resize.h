// Resizing of 8-bit pictures: separable, horizontal pass first, fixed point. Exact integers, so every machine and every
// instruction set gives the same bytes; src/ouzel/processors/resize.py holds the meaning in NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ouzel::kernels {

enum class ResizeFilter { nearest, box, bilinear, bicubic, lanczos };

// Bits after the point in a weight: 8 bits of pixel and 2 bits of head room for overshoot leave 22 of 32.
inline constexpr int kResizePrecisionBits = 32 - 8 - 2;

// One axis of a resize: result i is the sum over t < count[i] of weights[i * stride + t] * source[first[i] + t].
// All first[i] + count[i] lie within the source.
struct ResizeTaps {
  int stride = 0;
  std::vector<int32_t> first;
  std::vector<int32_t> count;
  std::vector<int32_t> weights;
};

// False when the name is none of "nearest", "box", "bilinear", "bicubic", "lanczos".
bool parse_resize_filter(std::string_view name, ResizeFilter* filter);

// Taps from `source` to `out` pixels, both at least 1. No libm call and no fused multiply-add takes part, so the
// weights are equal on every machine.
ResizeTaps resize_taps(int source, int out, ResizeFilter filter);

// Rows that the horizontal pass works on at once, and the bytes of scratch memory that it needs for them.
inline constexpr int kResizeTileRows = 16;
inline size_t resize_scratch(int src_w, int channels) {
  return (static_cast<size_t>(src_w) + 1) * channels * kResizeTileRows;
}

// Horizontal pass over `rows` rows. src: [rows][src_w][channels], dst: [rows][taps.first.size()][channels], both dense.
// scratch: resize_scratch(src_w, channels) bytes. src and dst must not overlap.
void resize_horizontal_u8(const uint8_t* src, int rows, int src_w, int channels, const ResizeTaps& taps, uint8_t* dst,
                          uint8_t* scratch);

// Vertical pass for result rows [row_begin, row_end). src: [src_h][row_bytes] dense, dst: whole result, same row_bytes.
void resize_vertical_u8(const uint8_t* src, int row_bytes, const ResizeTaps& taps, int row_begin, int row_end,
                        uint8_t* dst);

// The whole resize, with its own scratch memory. src: [h][w][c], dst: [dst_h][dst_w][c], dense, not overlapping, every
// size at least 1. A side that keeps its length is not filtered. May throw std::bad_alloc.
void resize_u8(const uint8_t* src, int h, int w, int c, uint8_t* dst, int dst_h, int dst_w, ResizeFilter filter);

}  // namespace ouzel::kernels
