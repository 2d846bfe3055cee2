// The paged cache of keys and values: one allocation a block for all layers and key heads, in the form of the attention
// kernel, in one type: f32, f16 or q8 (see kernels.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "kernels/kernels.h"

namespace ouzel {

struct CacheLayer {
  int64_t kv_heads, head_dim, value_dim;
};

// Floats that one block of keys, and of values, of one head takes in a cache of `type`.
int64_t key_block_floats(WeightType type, int64_t head_dim);
int64_t value_block_floats(WeightType type, int64_t value_dim);

class Cache {
 public:
  Cache(const std::vector<CacheLayer>& layers, WeightType type);

  WeightType type() const { return type_; }

  // Makes at least `count` blocks; new ones hold zeros, old ones stay where they are. Throws Refused when memory ends.
  void ensure(int64_t count);
  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t bytes() const { return blocks() * floats_ * static_cast<int64_t>(sizeof(float)); }

  float* keys(int64_t block, int layer, int64_t head);
  float* values(int64_t block, int layer, int64_t head);

 private:
  struct Layer {
    int64_t keys, values;  // offsets in a block, in floats
    int64_t key_floats, value_floats;
  };
  WeightType type_;
  std::vector<Layer> layers_;
  int64_t floats_ = 0;  // of a block
  std::vector<AlignedFloats> blocks_;
};

}  // namespace ouzel
