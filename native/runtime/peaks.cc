#include "runtime/peaks.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/aligned.h"
#include "runtime/error.h"

namespace ouzel {
namespace {

constexpr int kRounds = 6;
constexpr int64_t kIterations = 1 << 21;
constexpr int64_t kReadFloats = int64_t{1} << 26;  // 256 MiB: far beyond any cache that threads share
constexpr int64_t kReadPiece = int64_t{1} << 18;

template <typename Work>
double seconds(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_loop(Machine& machine, double (*loop)(int64_t)) {
  const int threads = machine.pool().threads();
  std::vector<double> done(static_cast<size_t>(threads));
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double time = seconds([&] {
      machine.pool().parallel_for(threads, [&](int64_t item, int) {
        done[static_cast<size_t>(item)] = loop(kIterations);
      });
    });
    double sum = 0;
    for (double part : done) sum += part;
    best = std::max(best, sum / time);
  }
  return best;
}

double best_read(Machine& machine) {
  AlignedFloats memory(kReadFloats);
  std::fill_n(memory.data(), kReadFloats, 1.0f);
  std::vector<float> sums(kReadFloats / kReadPiece);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double time = seconds([&] {
      machine.pool().parallel_for(kReadFloats / kReadPiece, [&](int64_t item, int) {
        sums[static_cast<size_t>(item)] = machine.kernels().read_loop(memory.data() + item * kReadPiece, kReadPiece);
      });
    });
    best = std::max(best, static_cast<double>(memory.bytes()) / time);
  }
  return best;
}

}  // namespace

Peaks measure_peaks(Machine& machine) try {
  return {best_loop(machine, machine.kernels().fma_loop), best_read(machine)};
} catch (const std::bad_alloc&) {
  throw Refused("measuring the machine", "256 MiB of memory", "no memory");
}

double measure_dot_peak(Machine& machine) { return best_loop(machine, machine.kernels().dot_loop); }

}  // namespace ouzel
