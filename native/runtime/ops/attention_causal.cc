// Causal attention over the paged cache: the new keys and values are stored first, then every row attends.
#include <algorithm>
#include <string>

#include "runtime/error.h"
#include "runtime/ops/attention.h"

namespace ouzel {
namespace {

class CausalAttention : public Operation {
 public:
  explicit CausalAttention(const NodeReader& node)
      : form_(node), layer_(static_cast<int>(node.integer("layer"))), where_(node.where()) {}

  void check(const Frame& frame) const override;

  void run(Frame& frame) const override {
    store(frame);
    BlockLists blocks{frame.cache().type(), {}, {}};
    std::vector<AttentionTask> tasks;
    for (const SequenceRows& sequence : frame.step().sequences) {
      if (sequence.count > 0) add_tasks(frame, sequence, tasks, blocks);
    }
    attend(frame, form_, tasks, blocks);
  }

 private:
  // New rows of one sequence that go into one block.
  struct Part {
    int64_t row, count, block, at;
  };

  void check_blocks(const Frame& frame, const SequenceRows& sequence) const;
  void store(Frame& frame) const;
  void store_part(const Frame& frame, const Part& part, int64_t head) const;
  void add_tasks(const Frame& frame, const SequenceRows& sequence, std::vector<AttentionTask>& tasks,
                 BlockLists& blocks) const;

  AttentionForm form_;
  int layer_;
  std::string where_;
};

void CausalAttention::check(const Frame& frame) const {
  const int64_t rows = frame.rows(form_.y);
  int64_t at = 0;
  for (const SequenceRows& sequence : frame.step().sequences) {
    const bool follows = sequence.start == at && sequence.count >= 0 && sequence.past >= 0;
    if (!follows || sequence.count > rows - at) {
      throw Refused(where_, "sequences that follow each other in the rows", "one from row " + std::to_string(sequence.start));
    }
    check_blocks(frame, sequence);
    at += sequence.count;
  }
  if (at != rows) throw Refused(where_, "sequences over " + std::to_string(rows) + " rows", std::to_string(at));
}

void CausalAttention::check_blocks(const Frame& frame, const SequenceRows& sequence) const {
  // past is bounded by the blocks before anything is added to it.
  const int64_t room = sequence.block_count * kBlockTokens;
  if (sequence.past > room || sequence.past + sequence.count > room) {
    throw Refused(where_, "cache blocks for all tokens", std::to_string(sequence.block_count) + " blocks");
  }
  const int64_t blocks = frame.cache().blocks();
  for (int64_t i = 0; i < divide_up(sequence.past + sequence.count, kBlockTokens); ++i) {
    const int64_t block = sequence.blocks[i];
    if (block < 0 || block >= blocks) {
      throw Refused(where_, "cache blocks below " + std::to_string(blocks), std::to_string(block));
    }
  }
}

void CausalAttention::store(Frame& frame) const {
  std::vector<Part> parts;
  for (const SequenceRows& sequence : frame.step().sequences) {
    for (int64_t done = 0; done < sequence.count;) {
      const int64_t token = sequence.past + done, at = token % kBlockTokens;
      const int64_t count = std::min(kBlockTokens - at, sequence.count - done);
      parts.push_back({sequence.start + done, count, sequence.blocks[token / kBlockTokens], at});
      done += count;
    }
  }
  if (parts.size() == 1 && parts[0].count == 1) {
    // One row: less work than handing it out.
    for (int64_t head = 0; head < form_.kv_heads; ++head) store_part(frame, parts[0], head);
    return;
  }
  frame.for_each(static_cast<int64_t>(parts.size()) * form_.kv_heads, [&](int64_t item, int) {
    store_part(frame, parts[static_cast<size_t>(item / form_.kv_heads)], item % form_.kv_heads);
  });
}

void CausalAttention::store_part(const Frame& frame, const Part& part, int64_t head) const {
  StoreArgs args{};
  args.k_stride = form_.kv_heads * form_.head_dim;
  args.k = frame.in(form_.k) + part.row * args.k_stride + head * form_.head_dim;
  args.v_stride = form_.kv_heads * form_.value_dim;
  args.v = frame.in(form_.v) + part.row * args.v_stride + head * form_.value_dim;
  args.count = part.count;
  args.at = part.at;
  args.head_dim = form_.head_dim;
  args.value_dim = form_.value_dim;
  float *keys = frame.cache().keys(part.block, layer_, head), *values = frame.cache().values(part.block, layer_, head);
  args.k_block = keys;
  args.v_block = values;
  args.cache = frame.cache().type();
  if (part.at == 0 && part.count < kBlockTokens) {
    // The block may have belonged to another sequence whose numbers were not finite; the kernel multiplies what lies
    // past the last key by 0.
    std::fill_n(keys, key_block_floats(args.cache, form_.head_dim), 0.0f);
    std::fill_n(values, value_block_floats(args.cache, form_.value_dim), 0.0f);
  }
  frame.kernels().store(args);
}

void CausalAttention::add_tasks(const Frame& frame, const SequenceRows& sequence, std::vector<AttentionTask>& tasks,
                                BlockLists& blocks) const {
  const int64_t keys = sequence.past + sequence.count;
  for (int64_t head = 0; head < form_.kv_heads; ++head) {
    tasks.push_back({sequence.start, sequence.count, head, keys, sequence.past + 1, 1, blocks.keys.size()});
    for (int64_t i = 0; i < divide_up(keys, kBlockTokens); ++i) {
      blocks.keys.push_back(frame.cache().keys(sequence.blocks[i], layer_, head));
      blocks.values.push_back(frame.cache().values(sequence.blocks[i], layer_, head));
    }
  }
}

}  // namespace

std::unique_ptr<Operation> make_causal_attention(const NodeReader& node) {
  return std::make_unique<CausalAttention>(node);
}

}  // namespace ouzel
