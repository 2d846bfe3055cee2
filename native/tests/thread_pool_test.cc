// The thread pool under load; built with a sanitizer by tests/native/test_sanitized.py. Ends with 1 at the first fault.
#include "base/thread_pool.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "thread_pool_test: %s\n", what);
  std::exit(1);
}

void every_item_once(ouzel::ThreadPool& pool, int64_t items) {
  std::vector<int> seen(static_cast<size_t>(items));
  pool.parallel_for(items, [&](int64_t item, int worker) {
    expect(worker >= 0 && worker < pool.threads(), "worker out of range");
    ++seen[static_cast<size_t>(item)];
  });
  for (int count : seen) expect(count == 1, "an item was not done exactly once");
}

void small_jobs_follow_each_other() {
  for (int threads : {1, 2, 3, 8}) {
    ouzel::ThreadPool pool(threads);
    for (int round = 0; round < 2000; ++round) every_item_once(pool, round % 23);
  }
}

void threads_sleep_and_wake() {
  ouzel::ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    every_item_once(pool, 64);
  }
}

void callers_take_turns() {
  ouzel::ThreadPool pool(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) every_item_once(pool, 17);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

void many_pools_live_at_once() {
  std::vector<std::unique_ptr<ouzel::ThreadPool>> pools;
  for (int i = 0; i < 12; ++i) pools.push_back(std::make_unique<ouzel::ThreadPool>(1 + i % 4));
  for (const auto& pool : pools) every_item_once(*pool, 100);
  for (int round = 0; round < 100; ++round) ouzel::ThreadPool unused(4);
}

void exceptions_reach_the_caller() {
  for (int threads : {1, 4}) {
    ouzel::ThreadPool pool(threads);
    bool caught = false;
    try {
      pool.parallel_for(1000, [](int64_t item, int) {
        if (item == 13) throw std::runtime_error("thirteen");
      });
    } catch (const std::runtime_error& error) {
      caught = std::string(error.what()) == "thirteen";
    }
    expect(caught, "an exception was lost");
    every_item_once(pool, 100);
  }
}

}  // namespace

int main() {
  small_jobs_follow_each_other();
  threads_sleep_and_wake();
  callers_take_turns();
  many_pools_live_at_once();
  exceptions_reach_the_caller();
  std::puts("thread pool: good");
  return 0;
}
