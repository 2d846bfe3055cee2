// What runs the work: the kernels chosen for this processor and a pool of threads. Shared by the plans of one engine.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace ouzel {

class Machine {
 public:
  // cap: the widest instruction set to use, or empty. Throws Refused for an unknown or unavailable one, naming those that
  // are available, for a thread count outside [1, 1024] and when the system refuses threads.
  Machine(const std::string& cap, int threads);

  const Kernels& kernels() const { return kernels_; }
  ThreadPool& pool() { return pool_; }

 private:
  const Kernels& kernels_;
  ThreadPool pool_;
};

// Names of the instruction sets that this machine can run, widest first.
std::vector<std::string> available_isas();

// The kernels under the cap; throws like Machine.
const Kernels& kernels_for(const std::string& cap);

}  // namespace ouzel
