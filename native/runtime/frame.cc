#include "runtime/frame.h"

#include <algorithm>
#include <new>
#include <string>

#include "runtime/error.h"

namespace ouzel {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr int64_t kMostRows = int64_t{1} << 31;

// An arena this much larger than needed is given back: one large picture must not hold memory for ever.
constexpr int64_t kKeptFloats = int64_t{256} << 18;  // 256 MiB

void fit(AlignedFloats& memory, int64_t floats) {
  const bool too_large = memory.size() > kKeptFloats && memory.size() / 2 > floats;
  try {
    if (too_large || memory.size() < floats) memory.reset(floats);
  } catch (const std::bad_alloc&) {
    throw Refused("making working memory", std::to_string(floats * 4) + " bytes", "no memory",
                  "use smaller pictures or smaller prefill chunks");
  }
}

std::string shape(int64_t rows, int64_t width) {
  std::string text = "[";
  text.append(std::to_string(rows)).append(", ").append(std::to_string(width)).append("]");
  return text;
}

}  // namespace

Frame::Frame(Machine& machine, const Program& program, const StepArgs& step, Cache& cache, Workspace& workspace)
    : machine_(machine),
      step_(step),
      cache_(cache),
      workspace_(workspace),
      counts_(program.symbols().size(), -1),
      last_poll_(std::chrono::steady_clock::now()) {
  workspace_.scratch.resize(static_cast<size_t>(threads()));
  count_rows(program);
  place_values(program);
}

void Frame::count_rows(const Program& program) {
  if (step_.inputs.size() != program.inputs().size()) {
    throw Refused("step", std::to_string(program.inputs().size()) + " inputs", std::to_string(step_.inputs.size()));
  }
  for (size_t i = 0; i < step_.inputs.size(); ++i) {
    const Value& value = program.values()[static_cast<size_t>(program.inputs()[i])];
    const InputArray& array = step_.inputs[i];
    int64_t& count = counts_[static_cast<size_t>(value.symbol)];
    if (count < 0 && array.rows <= kMostRows) count = array.rows;
    if (array.width != value.width || array.type != value.type || array.rows != count) {
      throw Refused("step, input " + value.name, shape(count, value.width), shape(array.rows, array.width));
    }
  }
  for (const Fold& fold : program.folds()) {
    const int64_t of = counts_[static_cast<size_t>(fold.of)];
    int64_t& count = counts_[static_cast<size_t>(fold.symbol)];
    const std::string& name = program.symbols()[static_cast<size_t>(fold.symbol)];
    if (of < 0 || of % fold.count != 0 || (count >= 0 && count != of / fold.count)) {
      throw Refused("step, rows of " + name, std::to_string(fold.count) + " for each", std::to_string(of));
    }
    count = of / fold.count;
  }
}

void Frame::place_values(const Program& program) {
  std::vector<int64_t> offsets;
  int64_t floats = 0;
  for (const Slot& slot : program.slots()) {
    const int64_t count = counts_[static_cast<size_t>(slot.symbol)];
    if (count < 0) {
      throw Refused("step", "an input that tells the rows of " + program.symbols()[static_cast<size_t>(slot.symbol)],
                    "none");
    }
    offsets.push_back(floats);
    floats += round_up(count * slot.width, kAlignedFloats);
  }
  fit(workspace_.arena, floats);
  for (const Value& value : program.values()) {
    const auto place = static_cast<size_t>(value.place);
    rows_.push_back(counts_[static_cast<size_t>(value.symbol)]);
    places_.push_back(value.home == Home::input ? step_.inputs[place].data
                                                : static_cast<const void*>(workspace_.arena.data() + offsets[place]));
  }
}

void Frame::reserve_scratch(int64_t floats) {
  for (AlignedFloats& scratch : workspace_.scratch) fit(scratch, floats);
}

float* Frame::reserve_pack(int64_t floats) {
  fit(workspace_.pack, floats);
  return workspace_.pack.data();
}

const float* Frame::quantised(int value, int64_t k) {
  if (quantised_ == value) return workspace_.quantised.data();
  const int64_t count = rows(value), row_floats = divide_up(k, kGroupColumns) * kQuantFloats;
  fit(workspace_.quantised, count * row_floats);
  const int64_t unit = kernels().quantise_unit(count), piece = round_up(divide_up(kPieceFloats, k), unit);
  for_each(divide_up(count, piece), [&](int64_t item, int) {
    const int64_t first = item * piece;
    kernels().quantise({in(value) + first * k, k, std::min(piece, count - first), k, unit,
                        workspace_.quantised.data() + first * row_floats});
  });
  quantised_ = value;
  return workspace_.quantised.data();
}

bool Frame::stopped(int worker) {
  if (stop_.load(std::memory_order_relaxed)) return true;
  if (step_.cancel != nullptr && std::atomic_ref<int32_t>(*step_.cancel).load(std::memory_order_relaxed) != 0) {
    stop_.store(true, std::memory_order_relaxed);
    return true;
  }
  // Worker 0 is the thread that called run, the only one on which the caller's signals may be looked at.
  if (worker == 0 && step_.poll) poll();
  return stop_.load(std::memory_order_relaxed);
}

void Frame::poll() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_poll_ < kPollInterval) return;
  last_poll_ = now;
  try {
    step_.poll();
  } catch (...) {
    poll_error_ = std::current_exception();
    stop_.store(true, std::memory_order_relaxed);
  }
}

void Frame::raise_if_stopped() {
  if (!stopped(0)) return;
  if (poll_error_) std::rethrow_exception(poll_error_);
  throw Cancelled();
}

}  // namespace ouzel
