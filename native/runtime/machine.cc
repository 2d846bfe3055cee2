#include "runtime/machine.h"

#include <system_error>

#include "runtime/error.h"

namespace ouzel {
namespace {

constexpr int kMostThreads = 1024;

int checked_threads(int threads) {
  if (threads < 1 || threads > kMostThreads) {
    throw Refused("starting threads", "1 to " + std::to_string(kMostThreads) + " threads", std::to_string(threads));
  }
  return threads;
}

ThreadPool make_pool(int threads) try {
  return ThreadPool(checked_threads(threads));
} catch (const std::system_error& error) {
  throw Refused("starting threads", std::to_string(threads) + " threads", error.what(), "ask for fewer threads");
}

}  // namespace

Machine::Machine(const std::string& cap, int threads) : kernels_(kernels_for(cap)), pool_(make_pool(threads)) {}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const char* const* name = kernels_available(); *name != nullptr; ++name) names.emplace_back(*name);
  return names;
}

const Kernels& kernels_for(const std::string& cap) {
  const Kernels* found = kernels(cap.c_str());
  if (found != nullptr) return *found;
  std::string names;
  for (const std::string& name : available_isas()) names += (names.empty() ? "" : ", ") + name;
  throw Refused("choosing an instruction set", "one of " + names, cap, "set OUZEL_ISA to one of these, or unset it");
}

}  // namespace ouzel
