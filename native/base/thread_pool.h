// A pool of threads that share out numbered items of work. Who does which item is not fixed, so results must not depend
// on it; no kernel's result does.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace ouzel {

class ThreadPool {
 public:
  // Starts `threads - 1` threads; the caller of parallel_for is the last one. Throws std::system_error when the system
  // refuses a thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return threads_; }

  // Calls body(item, worker) once for every item in [0, items), worker in [0, threads()), and returns when all are done.
  // Worker 0 is the calling thread. Calls from several threads run one after another; calls must not be nested. The
  // first exception of a body ends the work early and is thrown here. In the child of a fork the caller does everything.
  template <typename Body>
  void parallel_for(int64_t items, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(items, Task{const_cast<void*>(static_cast<const void*>(&body)), [](void* context, int64_t item, int worker) {
                      (*static_cast<Plain*>(context))(item, worker);
                    }});
  }

 private:
  struct Task {
    void* context = nullptr;
    void (*call)(void* context, int64_t item, int worker) = nullptr;
  };

  void run(int64_t items, Task task);
  void start();
  void stop() noexcept;
  void work(int worker);
  void help(int worker);
  void share(int worker) noexcept;

  const int threads_;
  const uint32_t birth_;  // fork_generation() when the threads were started
  std::vector<std::thread> workers_;
  std::mutex turn_;  // held by the caller whose work is being done

  // One job at a time. A helper first counts itself in `active_`, then looks at `open_`; the caller first closes, then
  // waits for `active_` to be 0. So a helper that wakes late never sees the fields of a job while they change.
  Task task_;
  int64_t items_ = 0;
  std::exception_ptr error_;
  std::mutex error_lock_;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<int32_t> active_{0};
  std::atomic<bool> open_{false};
  std::atomic<bool> stopping_{false};
};

}  // namespace ouzel
