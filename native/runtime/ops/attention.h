// What causal and segmented attention share: the operands and the shape of one piece of work.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/operation.h"

namespace ouzel {

// Heads and dimensions of an attention node.
struct AttentionForm {
  int q, k, v, y;
  int64_t heads, kv_heads, head_dim, value_dim;
  float scale;

  explicit AttentionForm(const NodeReader& node);
  int64_t group() const { return heads / kv_heads; }
};

// Query rows that see the same keys: a sequence's new rows or a segment, for one key head. Blocks lie in the step's
// pointer lists from `first_block` on.
struct AttentionTask {
  int64_t start, rows, kv_head;
  int64_t keys, limit0, limit_step;
  size_t first_block;
};

// Pointers to blocks of keys and values, of all tasks one after another.
struct BlockLists {
  WeightType type;  // of what the blocks hold
  std::vector<const void*> keys, values;
};

// Attends for all tasks, in tiles of rows.
void attend(Frame& frame, const AttentionForm& form, const std::vector<AttentionTask>& tasks, const BlockLists& blocks);

std::unique_ptr<Operation> make_causal_attention(const NodeReader& node);
std::unique_ptr<Operation> make_segment_attention(const NodeReader& node);

}  // namespace ouzel
