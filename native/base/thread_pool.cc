#include "base/thread_pool.h"

#include "base/fork.h"
#include "base/pause.h"

namespace ouzel {
namespace {

// Between two operations of a step there are microseconds, between two steps much more: spinning turns of some 50
// microseconds bridge the first and give the core back in the second.
constexpr int kSpins = 2000;

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads), birth_(fork_generation()) {
  try {
    start();
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::start() {
  workers_.reserve(static_cast<size_t>(threads_ - 1));
  for (int worker = 1; worker < threads_; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

void ThreadPool::stop() noexcept {
  const bool forked = fork_generation() != birth_;
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) {
    // The parent's threads are not in this process; there is nobody to wait for.
    if (forked) {
      worker.detach();
    } else {
      worker.join();
    }
  }
}

void ThreadPool::run(int64_t items, Task task) {
  if (items <= 0) return;
  if (items == 1 || threads_ == 1 || fork_generation() != birth_) {
    for (int64_t item = 0; item < items; ++item) task.call(task.context, item, 0);
    return;
  }
  const std::lock_guard<std::mutex> turn(turn_);
  task_ = task;
  items_ = items;
  error_ = nullptr;
  next_.store(0, std::memory_order_relaxed);
  open_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  share(0);
  open_.store(false);
  for (int spin = 0; active_.load() != 0; ++spin) {
    if (spin < kSpins) {
      cpu_pause();
    } else if (const int32_t busy = active_.load(); busy != 0) {
      active_.wait(busy);
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  while (!stopping_.load()) {
    help(worker);
    for (int spin = 0; spin < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++spin) cpu_pause();
    epoch_.wait(seen);
    seen = epoch_.load();
  }
}

void ThreadPool::help(int worker) {
  active_.fetch_add(1);
  if (open_.load()) share(worker);
  if (active_.fetch_sub(1) == 1) active_.notify_all();
}

void ThreadPool::share(int worker) noexcept {
  for (;;) {
    const int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= items_) return;
    try {
      task_.call(task_.context, item, worker);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_lock_);
      if (!error_) error_ = std::current_exception();
      next_.store(items_, std::memory_order_relaxed);
    }
  }
}

}  // namespace ouzel
