// Attention inside segments of rows: keys and values of some heads are packed into blocks of the cache's form, used and
// forgotten. Segments are never mixed, so a picture's result does not depend on the pictures beside it.
#include <algorithm>
#include <string>

#include "runtime/error.h"
#include "runtime/ops/attention.h"

namespace ouzel {
namespace {

// Packed memory of one pass; at least one head of one segment is packed, however large.
constexpr int64_t kPackFloats = int64_t{8} << 20;  // 32 MiB

class SegmentAttention : public Operation {
 public:
  explicit SegmentAttention(const NodeReader& node)
      : form_(node),
        key_floats_(key_block_floats(WeightType::f32, form_.head_dim)),
        value_floats_(value_block_floats(WeightType::f32, form_.value_dim)),
        where_(node.where()) {}

  void check(const Frame& frame) const override;
  void run(Frame& frame) const override;

 private:
  std::vector<AttentionTask> all_tasks(const Frame& frame) const;
  void run_pass(Frame& frame, const std::vector<AttentionTask>& tasks, size_t block_count) const;
  void pack_block(const Frame& frame, const AttentionTask& task, int64_t block, float* memory) const;

  AttentionForm form_;
  int64_t key_floats_, value_floats_;
  std::string where_;
};

void SegmentAttention::check(const Frame& frame) const {
  const StepArgs& step = frame.step();
  if (step.borders == nullptr) return;
  const int64_t rows = frame.rows(form_.y), count = step.border_count;
  bool fits = count > 0 && step.borders[0] == 0 && step.borders[count - 1] == rows;
  for (int64_t i = 1; i < count; ++i) fits = fits && step.borders[i - 1] <= step.borders[i];
  if (!fits) throw Refused(where_, "segment borders rising from 0 to " + std::to_string(rows), "others");
}

std::vector<AttentionTask> SegmentAttention::all_tasks(const Frame& frame) const {
  const StepArgs& step = frame.step();
  std::vector<AttentionTask> tasks;
  const auto add = [&](int64_t start, int64_t rows) {
    for (int64_t head = 0; rows > 0 && head < form_.kv_heads; ++head) tasks.push_back({start, rows, head, rows, rows, 0, 0});
  };
  if (step.borders == nullptr) add(0, frame.rows(form_.y));
  for (int64_t i = 1; i < step.border_count; ++i) add(step.borders[i - 1], step.borders[i] - step.borders[i - 1]);
  return tasks;
}

void SegmentAttention::run(Frame& frame) const {
  std::vector<AttentionTask> pass;
  int64_t blocks = 0;
  for (AttentionTask task : all_tasks(frame)) {
    const int64_t more = divide_up(task.keys, kBlockTokens);
    if (!pass.empty() && (blocks + more) * (key_floats_ + value_floats_) > kPackFloats) {
      run_pass(frame, pass, static_cast<size_t>(blocks));
      pass.clear();
      blocks = 0;
    }
    task.first_block = static_cast<size_t>(blocks);
    pass.push_back(task);
    blocks += more;
  }
  if (!pass.empty()) run_pass(frame, pass, static_cast<size_t>(blocks));
}

void SegmentAttention::run_pass(Frame& frame, const std::vector<AttentionTask>& tasks, size_t block_count) const {
  const int64_t block_floats = key_floats_ + value_floats_;
  float* memory = frame.reserve_pack(static_cast<int64_t>(block_count) * block_floats);
  BlockLists lists{WeightType::f32, {}, {}};
  std::vector<const AttentionTask*> owner;
  for (const AttentionTask& task : tasks) {
    owner.insert(owner.end(), static_cast<size_t>(divide_up(task.keys, kBlockTokens)), &task);
  }
  for (size_t i = 0; i < block_count; ++i) {
    const float* block = memory + static_cast<int64_t>(i) * block_floats;
    lists.keys.push_back(block);
    lists.values.push_back(block + key_floats_);
  }
  frame.for_each(static_cast<int64_t>(block_count), [&](int64_t item, int) {
    const AttentionTask& task = *owner[static_cast<size_t>(item)];
    pack_block(frame, task, item - static_cast<int64_t>(task.first_block), memory + item * block_floats);
  });
  attend(frame, form_, tasks, lists);
}

void SegmentAttention::pack_block(const Frame& frame, const AttentionTask& task, int64_t block, float* memory) const {
  const int64_t row = task.start + block * kBlockTokens;
  StoreArgs args{};
  args.k_stride = form_.kv_heads * form_.head_dim;
  args.k = frame.in(form_.k) + row * args.k_stride + task.kv_head * form_.head_dim;
  args.v_stride = form_.kv_heads * form_.value_dim;
  args.v = frame.in(form_.v) + row * args.v_stride + task.kv_head * form_.value_dim;
  args.count = std::min(kBlockTokens, task.rows - block * kBlockTokens);
  args.head_dim = form_.head_dim;
  args.value_dim = form_.value_dim;
  args.cache = WeightType::f32;
  args.k_block = memory;
  args.v_block = memory + key_floats_;
  // Places past the last key, and the padding of values, are zeros.
  if (args.count < kBlockTokens) std::fill_n(memory, key_floats_, 0.0f);
  if (args.count < kBlockTokens || form_.value_dim % 16 != 0) std::fill_n(memory + key_floats_, value_floats_, 0.0f);
  frame.kernels().store(args);
}

}  // namespace

std::unique_ptr<Operation> make_segment_attention(const NodeReader& node) {
  return std::make_unique<SegmentAttention>(node);
}

}  // namespace ouzel
