// Float matrices to packed ones: scales, minima and codes of groups of 32. Exact floating-point operations in a fixed
// order, so every machine gives the same bytes; src/ouzel/weights/quantise.py holds the meaning in NumPy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ouzel::kernels {

enum class StoredType { f32, bf16, f16 };

struct QuantiseArgs {
  const void* source;  // [rows][columns] dense, aligned to its element
  StoredType type;
  size_t rows, columns;
  int bits;                 // 8 or 4
  bool minimum;             // only with 4 bits
  const float* importance;  // [columns], or null: every column counts 1
  bool search;              // false: the scale of the largest value alone
  uint8_t* out;             // [rows / 16 up][columns / 32 up][quantised_block_bytes(bits, minimum)]
};

constexpr size_t quantised_block_bytes(int bits, bool minimum) {
  return (minimum ? 64 : 32) + size_t{16} * 32 * static_cast<size_t>(bits) / 8;
}

// The flat place of the first value (in the order of blocks, rows, columns) that is not finite or too large for a
// half-precision scale; -1 when all went well.
int64_t quantise(const QuantiseArgs& args);

}  // namespace ouzel::kernels
