// A program ready to run on a machine, with its cache and its working memory. One run at a time.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cache.h"
#include "runtime/frame.h"
#include "runtime/machine.h"
#include "runtime/operation.h"
#include "runtime/program.h"

namespace ouzel {

class Plan {
 public:
  // cache: what keys and values are kept in, "f32", "f16" or "q8". Throws Refused for another one, and when a node of the
  // program is not sound.
  Plan(std::shared_ptr<Machine> machine, Program program, const std::string& cache = "f32");

  // Runs the whole program and fills the wanted arrays. Throws Refused before anything runs when the step does not fit
  // or another run goes on, Cancelled when the cancel flag was set, and what `step.poll` throws.
  void run(const StepArgs& step);

  void ensure_blocks(int64_t count);
  int64_t blocks() const { return cache_.blocks(); }
  int64_t cache_bytes() const { return cache_.bytes(); }
  const Program& program() const { return program_; }

 private:
  void check_wanted(const StepArgs& step, const Frame& frame) const;
  void copy_wanted(const StepArgs& step, const Frame& frame, int value) const;

  std::shared_ptr<Machine> machine_;
  Program program_;
  std::vector<std::unique_ptr<Operation>> operations_;
  Cache cache_;
  Workspace workspace_;
  std::mutex running_;
};

}  // namespace ouzel
