// One run of a plan: where every value lies, how many rows each symbol has, and how the work is shared and stopped.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "base/aligned.h"
#include "runtime/cache.h"
#include "runtime/machine.h"
#include "runtime/program.h"

namespace ouzel {

// An array that the caller gives, dense [rows, width].
struct InputArray {
  const void* data;
  int64_t rows, width;
  ValueType type;
};

// Where a copy of a value goes, dense [rows, width] float32.
struct WantedArray {
  int value;
  float* data;
  int64_t rows, width;
};

// Rows [start, start + count) belong to a sequence with `past` tokens in its cache blocks.
struct SequenceRows {
  int64_t start, count, past;
  const int32_t* blocks;
  int64_t block_count;
};

struct StepArgs {
  std::vector<InputArray> inputs;
  std::vector<WantedArray> wanted;
  std::vector<SequenceRows> sequences;
  const int32_t* borders = nullptr;  // of the segments; null: all rows are one segment
  int64_t border_count = 0;
  int32_t* cancel = nullptr;         // not 0: stop
  std::function<void()> poll;        // called now and then by the thread that runs the step; may throw to stop it
};

// Memory that a plan keeps from run to run.
struct Workspace {
  AlignedFloats arena;
  AlignedFloats pack;                  // keys and values of segments in the attention kernel's form
  AlignedFloats quantised;             // one value's rows for products with packed weights
  std::vector<AlignedFloats> scratch;  // one a worker
};

class Frame {
 public:
  // Throws Refused when the inputs do not fit the program or memory ends.
  Frame(Machine& machine, const Program& program, const StepArgs& step, Cache& cache, Workspace& workspace);

  const Kernels& kernels() const { return machine_.kernels(); }
  const StepArgs& step() const { return step_; }
  Cache& cache() const { return cache_; }
  int threads() const { return machine_.pool().threads(); }

  int64_t rows(int value) const { return rows_[static_cast<size_t>(value)]; }
  const float* in(int value) const { return static_cast<const float*>(places_[static_cast<size_t>(value)]); }
  const int32_t* index(int value) const { return static_cast<const int32_t*>(places_[static_cast<size_t>(value)]); }
  float* out(int value) const { return const_cast<float*>(in(value)); }

  // Gives every worker at least `floats` floats; scratch(worker) is valid until the next call.
  void reserve_scratch(int64_t floats);
  float* scratch(int worker) const { return workspace_.scratch[static_cast<size_t>(worker)].data(); }
  float* reserve_pack(int64_t floats);

  // The rows of a value of width `k` quantised for packed weights; made when the value before was another one. Valid
  // until another value is asked for.
  const float* quantised(int value, int64_t k);

  // Calls body(item, worker) for all items on all threads; items not yet begun are left out once the step is stopped.
  template <typename Body>
  void for_each(int64_t items, Body&& body) {
    machine_.pool().parallel_for(items, [&](int64_t item, int worker) {
      if (!stopped(worker)) body(item, worker);
    });
  }

  // Calls body(first, count) for pieces of `rows` rows that are `row_floats` floats of work each.
  template <typename Body>
  void for_rows(int64_t rows, int64_t row_floats, Body&& body) {
    const int64_t piece = std::max<int64_t>(1, kPieceFloats / std::max<int64_t>(1, row_floats));
    for_each(divide_up(rows, piece), [&](int64_t item, int) {
      const int64_t first = item * piece;
      body(first, std::min(piece, rows - first));
    });
  }

  // Throws Cancelled, or what poll threw, once the step is stopped. Called between operations.
  void raise_if_stopped();

 private:
  // Enough work to outweigh handing it to another thread, small enough to stay in a core's first caches.
  static constexpr int64_t kPieceFloats = 16384;

  void count_rows(const Program& program);
  void place_values(const Program& program);
  bool stopped(int worker);
  void poll();

  Machine& machine_;
  const StepArgs& step_;
  Cache& cache_;
  Workspace& workspace_;
  std::vector<int64_t> counts_;       // by symbol; -1: not known
  std::vector<int64_t> rows_;         // by value
  std::vector<const void*> places_;   // by value
  int quantised_ = -1;                // the value whose rows workspace_.quantised holds
  std::atomic<bool> stop_{false};
  std::exception_ptr poll_error_;     // written by worker 0 only
  std::chrono::steady_clock::time_point last_poll_;
};

}  // namespace ouzel
