#include "runtime/ops/attention.h"

#include <algorithm>

namespace ouzel {

AttentionForm::AttentionForm(const NodeReader& node)
    : q(node.input(0)),
      k(node.input(1)),
      v(node.input(2)),
      y(node.output()),
      heads(node.integer("heads")),
      kv_heads(node.integer("kv_heads")),
      head_dim(node.integer("head_dim")),
      value_dim(node.integer("value_dim")),
      scale(node.number("scale")) {
  node.require(kv_heads > 0 && heads > 0 && heads % kv_heads == 0, "heads in groups of one size");
  const bool fits = head_dim > 0 && value_dim > 0 && node.output_value().width == heads * value_dim;
  node.require(fits, "a result of heads * value_dim");
  node.like_output(0, heads * head_dim);
  node.like_output(1, kv_heads * head_dim);
  node.like_output(2, kv_heads * value_dim);
}

namespace {

// Rows of a task from `first` on: one piece of work.
struct Item {
  const AttentionTask* task;
  int64_t first;
};

std::vector<Item> cut(const std::vector<AttentionTask>& tasks, int64_t tile) {
  std::vector<Item> items;
  for (const AttentionTask& task : tasks) {
    // The last rows of a causal task see the most keys: they go first, so that the threads end together.
    for (int64_t at = divide_up(task.rows, tile) - 1; at >= 0; --at) items.push_back({&task, at * tile});
  }
  return items;
}

AttentionArgs arguments(const Frame& frame, const AttentionForm& form, const BlockLists& blocks, const Item& item,
                        int64_t tile) {
  const AttentionTask& task = *item.task;
  const int64_t row = task.start + item.first;
  AttentionArgs args{};
  args.q_stride = form.heads * form.head_dim;
  args.q = frame.in(form.q) + row * args.q_stride + task.kv_head * form.group() * form.head_dim;
  args.rows = std::min(tile, task.rows - item.first);
  args.group = form.group();
  args.head_dim = form.head_dim;
  args.value_dim = form.value_dim;
  args.k_blocks = blocks.keys.data() + task.first_block;
  args.v_blocks = blocks.values.data() + task.first_block;
  args.cache = blocks.type;
  args.limit0 = task.limit0 + item.first * task.limit_step;
  args.limit_step = task.limit_step;
  // Blocks that no row of the tile sees are not looked at.
  args.keys = std::min(task.keys, args.limit0 + (args.rows - 1) * args.limit_step);
  args.scale = form.scale;
  args.out_stride = form.heads * form.value_dim;
  args.out = frame.out(form.y) + row * args.out_stride + task.kv_head * form.group() * form.value_dim;
  return args;
}

}  // namespace

void attend(Frame& frame, const AttentionForm& form, const std::vector<AttentionTask>& tasks, const BlockLists& blocks) {
  const Kernels& kernels = frame.kernels();
  const int64_t tile = kernels.attention_rows(form.group());
  const std::vector<Item> items = cut(tasks, tile);
  frame.reserve_scratch(kernels.attention_scratch(tile, form.group(), form.head_dim, form.value_dim));
  frame.for_each(static_cast<int64_t>(items.size()), [&](int64_t number, int worker) {
    AttentionArgs args = arguments(frame, form, blocks, items[static_cast<size_t>(number)], tile);
    args.scratch = frame.scratch(worker);
    kernels.attention(args);
  });
}

std::unique_ptr<Operation> make_attention(const NodeReader& node) {
  const std::string& mode = node.text("mode");
  if (mode == "causal") return make_causal_attention(node);
  node.require(mode == "segments", "mode causal or segments");
  return make_segment_attention(node);
}

}  // namespace ouzel
