#include "runtime/plan.h"

#include <cstring>
#include <string>
#include <utility>

#include "runtime/error.h"

namespace ouzel {
namespace {

std::unique_lock<std::mutex> hold(std::mutex& mutex) {
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) {
    throw Refused("step", "one run of an executable at a time", "a second one", "compile one executable for each thread");
  }
  return lock;
}

WeightType cache_type(const std::string& name) {
  if (name == "f32") return WeightType::f32;
  if (name == "f16") return WeightType::f16;
  if (name == "q8") return WeightType::q8;
  throw Refused("building a plan", "a cache of f32, f16 or q8", name);
}

}  // namespace

Plan::Plan(std::shared_ptr<Machine> machine, Program program, const std::string& cache)
    : machine_(std::move(machine)), program_(std::move(program)), cache_(cache_layers(program_), cache_type(cache)) {
  for (const Node& node : program_.nodes()) operations_.push_back(make_operation(program_, node));
}

void Plan::run(const StepArgs& step) {
  const auto lock = hold(running_);
  Frame frame(*machine_, program_, step, cache_, workspace_);
  check_wanted(step, frame);
  for (const auto& operation : operations_) operation->check(frame);
  for (int input : program_.inputs()) copy_wanted(step, frame, input);
  frame.raise_if_stopped();
  for (size_t i = 0; i < operations_.size(); ++i) {
    operations_[i]->run(frame);
    frame.raise_if_stopped();
    copy_wanted(step, frame, program_.nodes()[i].output);
  }
}

void Plan::ensure_blocks(int64_t count) {
  const auto lock = hold(running_);
  cache_.ensure(count);
}

void Plan::check_wanted(const StepArgs& step, const Frame& frame) const {
  for (const WantedArray& wanted : step.wanted) {
    const bool known = wanted.value >= 0 && static_cast<size_t>(wanted.value) < program_.values().size();
    if (!known) throw Refused("step", "a wanted value of the program", std::to_string(wanted.value));
    const Value& value = program_.values()[static_cast<size_t>(wanted.value)];
    if (value.type != ValueType::f32 || wanted.rows != frame.rows(wanted.value) || wanted.width != value.width) {
      throw Refused("step, wanted " + value.name, "a float32 array of its shape", "another");
    }
  }
}

// A value is copied as soon as it is made: its memory may serve a later one.
void Plan::copy_wanted(const StepArgs& step, const Frame& frame, int value) const {
  for (const WantedArray& wanted : step.wanted) {
    const auto bytes = static_cast<size_t>(wanted.rows * wanted.width) * sizeof(float);
    if (wanted.value == value && bytes > 0) std::memcpy(wanted.data, frame.in(value), bytes);
  }
}

}  // namespace ouzel
