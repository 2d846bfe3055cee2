#include "runtime/cache.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "kernels/kernels.h"
#include "runtime/error.h"

namespace ouzel {

int64_t key_block_floats(WeightType type, int64_t head_dim) {
  return cache_block_bytes(type, head_dim) / static_cast<int64_t>(sizeof(float));
}

int64_t value_block_floats(WeightType type, int64_t value_dim) { return key_block_floats(type, round_up(value_dim, 16)); }

Cache::Cache(const std::vector<CacheLayer>& layers, WeightType type) : type_(type) {
  for (const CacheLayer& form : layers) {
    Layer layer{};
    layer.key_floats = round_up(key_block_floats(type, form.head_dim), kAlignedFloats);
    layer.value_floats = round_up(value_block_floats(type, form.value_dim), kAlignedFloats);
    layer.keys = floats_;
    layer.values = layer.keys + form.kv_heads * layer.key_floats;
    floats_ = layer.values + form.kv_heads * layer.value_floats;
    layers_.push_back(layer);
  }
}

void Cache::ensure(int64_t count) {
  try {
    while (blocks() < count) {
      AlignedFloats block(floats_);
      // The kernel multiplies what lies past the last key by 0, so it must be finite.
      std::fill_n(block.data(), block.size(), 0.0f);
      blocks_.push_back(std::move(block));
    }
  } catch (const std::bad_alloc&) {
    const int64_t wanted = count * floats_ * static_cast<int64_t>(sizeof(float));
    throw Refused("making cache memory", std::to_string(wanted) + " bytes",
                  "no more than " + std::to_string(bytes()) + " bytes", "use a shorter context or fewer sequences at once");
  }
}

float* Cache::keys(int64_t block, int layer, int64_t head) {
  const Layer& form = layers_[static_cast<size_t>(layer)];
  return blocks_[static_cast<size_t>(block)].data() + form.keys + head * form.key_floats;
}

float* Cache::values(int64_t block, int layer, int64_t head) {
  const Layer& form = layers_[static_cast<size_t>(layer)];
  return blocks_[static_cast<size_t>(block)].data() + form.values + head * form.value_floats;
}

}  // namespace ouzel
