// The kernels' contract: plain structs of pointers, strides and ranges. Kernels know no graph, allocate nothing and start
// no threads. Each ISA builds one table of these functions; `kernels()` chooses it once at run time.
//
// Repeatability: the result for a row depends on that row's operands alone, never on how many rows came with it, on the
// range [n0, n1), on threads or on the ISA. Every sum has one fixed order, stated with the function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ouzel {

enum class WeightType : int32_t { f32 = 0, bf16 = 1, f16 = 2, q8 = 3, q4 = 4, q4m = 5 };
enum class Activation : int32_t { none = 0, gelu_tanh = 1, gelu_erf = 2, silu = 3 };

inline constexpr int64_t kBlockTokens = 32;  // tokens in a cache block, and keys in one softmax tile

// Packed weights (q8, q4, q4m) of a matrix [N][K]: panels of sixteen rows, each a run of blocks of 32 columns; absent rows
// and columns are zeros. A block holds sixteen scales in half precision, for q4m sixteen minima, and the codes:
//   q8   w = (u - 128) * scale   512 bytes: byte 64 j + 4 r + b is column 4j + b of row r
//   q4   w = (u - 8) * scale     256 bytes: the low half of byte 64 j + 4 r + b is column 4j + b, the high half 16 + 4j + b
//   q4m  w = u * scale + minimum as q4
inline constexpr int64_t kGroupColumns = 32, kPanelRows = 16;

static inline constexpr bool is_packed(WeightType type) { return type >= WeightType::q8; }

static inline constexpr int64_t packed_panel_bytes(WeightType type, int64_t k) {
  const int64_t header = type == WeightType::q4m ? 64 : 32, codes = type == WeightType::q8 ? 512 : 256;
  return (k + kGroupColumns - 1) / kGroupColumns * (header + codes);
}

static inline constexpr int64_t packed_bytes(WeightType type, int64_t n, int64_t k) {
  return (n + kPanelRows - 1) / kPanelRows * packed_panel_bytes(type, k);
}

inline constexpr int64_t kQuantFloats = 12;  // of a row's group of quantised columns

// Rows quantised for packed weights: y receives rows * ceil(k / 32) * kQuantFloats floats. Row by row and group by group:
// a = max |x|, scale = a / 127, code = x * (127 / a) rounded to the nearest, ties to even (a so small that 127 / a is
// infinite: zeros; a number that is not finite: zeros with scale NaN).
// Tiles of `unit` rows (the last one is smaller: `width`), in them groups ascending, in a group: codes
// [8][width][4], scales [width], -8 * sum of codes and -128 * sum (int32) [width] each, sums as floats [width].
struct QuantiseArgs {
  const float* x;
  int64_t x_stride;
  int64_t rows;  // all tiles but the last are full
  int64_t k;
  int64_t unit;  // quantise_unit(rows of the whole)
  float* y;      // 64-byte aligned
};

// As LinearArgs, with quantised rows (x: `rows` rows from a tile's first on, all tiles full but the last of the whole) and
// packed weights; n0 a multiple of kPanelRows.
// Order: acc from +0, groups ascending: acc = fma(float(d), scale_x * scale_w, acc) with d the exact sum of (u - centre) *
// code, the product of the scales rounded; for q4m d is the sum of u * code, and acc = fma(float(sum of codes), scale_x *
// minimum, acc) follows. Then + bias, activation, + residual, each rounded once.
struct LinearPackedArgs {
  const float* x;
  int64_t rows;
  int64_t unit;
  const void* w;
  WeightType type;
  int64_t k;
  const float* bias;
  const float* residual;
  int64_t residual_stride;
  float* y;
  int64_t y_stride;
  Activation act;
  int64_t n0, n1;
};

// y[m][n] = act(sum_k x[m][k] * w[n][k] + bias[n]) + residual[m][n] for all m and n in [n0, n1).
// w is row-major [N][K] in the stored type, aligned only to its element size (it is the mapped file itself).
// Order: sixteen lanes, lane j takes k = j, j+16, ... ascending by fused multiply-add from +0 (a last part of fewer than
// sixteen uses zeros), then the fixed tree of f32x16::sum. Then + bias, activation, + residual, each rounded once.
struct LinearArgs {
  const float* x;
  int64_t x_stride;  // in floats
  int64_t rows;
  const void* w;
  WeightType type;
  int64_t k;
  const float* bias;      // may be null
  const float* residual;  // may be null; may equal y
  int64_t residual_stride;
  float* y;
  int64_t y_stride;
  Activation act;
  int64_t n0, n1;
  float* scratch;  // linear_scratch(k) floats, 64-byte aligned, private to the caller's thread
};

// One block of cached keys or values of a head, in a type that is f32, f16 or q8:
//   keys    [head_dim][kBlockTokens]: keys across lanes
//   values  [kBlockTokens][value_pad], value_pad = value_dim rounded up to 16 with zeros
// then, for q8, kBlockTokens scales: a token's a / 127 with a its largest magnitude in this head, and codes as QuantiseArgs
// rounds them. f16 is the nearest half, at most 65504 in magnitude. What is kept of a token depends on that token alone.
static inline constexpr int64_t stored_bytes(WeightType type) {
  return type == WeightType::f32 ? 4 : type == WeightType::q8 ? 1 : 2;
}
static inline constexpr int64_t cache_block_bytes(WeightType type, int64_t width) {
  const int64_t codes = (width * kBlockTokens * stored_bytes(type) + 63) / 64 * 64;
  return codes + (type == WeightType::q8 ? kBlockTokens * 4 : 0);
}

// Attention of one key head: the query rows of its group against keys in blocks, with a running softmax.
// Row r, group head g: query at q + r * q_stride + g * head_dim, result at out + r * out_stride + g * value_dim.
// Row r sees keys 0 .. min(limit0 + r * limit_step, keys) - 1 (causal: limit0 = past + first row + 1, limit_step = 1;
// segments: limit0 = keys, limit_step = 0). keys >= 1 and every row sees at least one.
// Blocks of keys and values as above; places past the last key hold finite numbers.
// Order: blocks ascending. In a block: scores by fused multiply-add over head_dim ascending, (q8: times the key's scale,)
// times scale; running maximum; p = exp(score - maximum) (0 for keys not seen); sum of p by the f32x16 tree over the block's
// two vectors added lane by lane; (q8: p times the value's scale;) out = out * correction, then fused multiply-add over the
// block's keys ascending; at the end out / sum.
struct AttentionArgs {
  const float* q;
  int64_t q_stride;
  int64_t rows;
  int64_t group;  // query heads that read this key head
  int64_t head_dim, value_dim;
  const void* const* k_blocks;
  const void* const* v_blocks;
  WeightType cache;  // f32, f16 or q8
  int64_t keys;
  int64_t limit0, limit_step;
  float scale;
  float* out;
  int64_t out_stride;
  float* scratch;  // attention_scratch(rows, group, head_dim, value_dim) floats, 64-byte aligned
};

// Puts `count` rows of keys and values of one head into one block from place `at` on (at + count <= kBlockTokens).
struct StoreArgs {
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  int64_t count, at;
  int64_t head_dim, value_dim;
  void* k_block;
  void* v_block;
  WeightType cache;
};

struct Kernels {
  const char* name;  // "avx512vnni", "avx512", "avxvnni", "avx2", "neondot", "neon", "plain"

  void (*linear)(const LinearArgs&);
  int64_t (*linear_scratch)(int64_t k);
  // A good width of [n0, n1) for one piece of work. With a single row wider pieces, up to about 512, read memory faster.
  int64_t (*linear_columns)(int64_t k);

  void (*quantise)(const QuantiseArgs&);
  int64_t (*quantise_unit)(int64_t rows);
  void (*linear_packed)(const LinearPackedArgs&);
  int64_t (*linear_packed_columns)(int64_t k, WeightType type);  // as linear_columns
  void (*decode_packed)(const void* w, WeightType type, int64_t k, int64_t row, float* y);  // a row to float32, exact

  void (*attention)(const AttentionArgs&);
  int64_t (*attention_scratch)(int64_t rows, int64_t group, int64_t head_dim, int64_t value_dim);
  int64_t (*attention_rows)(int64_t group);  // a good number of rows for one piece of work
  void (*store)(const StoreArgs&);

  // Row operations on rows [0, rows); strides in floats; x may equal y.
  // Sums over a row: lane j takes columns j, j+16, ... then the tree. rms: x * (1 / sqrt(mean + eps)) * w.
  void (*rms_norm)(const float* x, int64_t x_stride, const float* w, float eps, int64_t rows, int64_t heads, int64_t width,
                   float* y, int64_t y_stride);  // width is that of one head
  void (*layer_norm)(const float* x, int64_t x_stride, const float* w, const float* b, float eps, int64_t rows,
                     int64_t width, float* y, int64_t y_stride);
  // cos, sin are [rows][half]; pairs are columns (j, j + half), or (2j, 2j + 1) when `pairs`; further columns are copied.
  void (*rotary)(const float* x, int64_t x_stride, const float* cos, const float* sin, int64_t half, int64_t rows,
                 int64_t heads, int64_t head_dim, bool pairs, float* y, int64_t y_stride);
  void (*silu_mul)(const float* x, const float* up, int64_t n, float* y);
  void (*activate)(const float* x, Activation act, int64_t n, float* y);
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*mul)(const float* a, const float* b, int64_t n, float* y);
  void (*decode_row)(const void* w, WeightType type, int64_t n, float* y);                  // stored type to float32
  void (*axpy_row)(float a, const void* w, WeightType type, int64_t n, float* y);           // y = fma(a, w, y)
  bool (*all_finite)(const float* x, int64_t n);

  // Peaks for the benchmarks: fused multiply-adds on registers, and a sum over memory. Return floating-point operations / a
  // value that depends on every byte.
  double (*fma_loop)(int64_t iterations);
  double (*dot_loop)(int64_t iterations);  // of integer dot products of nibbles
  float (*read_loop)(const float* x, int64_t n);
};

// The table for this machine: the widest that the processor has, lowered by `cap` ("plain", "avx2", "avx512" ...; empty: no
// cap). Null when `cap` is unknown or not available here; `kernels_available()` lists what is.
const Kernels* kernels(const char* cap);
const char* const* kernels_available();  // null-terminated, widest first

}  // namespace ouzel
