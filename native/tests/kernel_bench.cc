// Speed of the kernels on one thread beside the machine's own peaks:
//   kernel_bench [ISA [TEXT]]      only the cases whose line begins with TEXT, such as "linear bf16 rows    1"
// Prints GFLOP/s and the share of the multiply-add peak, or GB/s and the share of a plain read loop. Each figure is the
// best of several runs, after one to warm up; weights are rotated through more memory than the caches hold.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace ouzel::bench {
namespace {

const char* wanted = "";  // the TEXT of the command line

bool begins_as_wanted(const std::string& title) { return title.compare(0, std::strlen(wanted), wanted) == 0; }

template <class... Values>
std::string text(const char* format, Values... values) {
  char line[160];
  snprintf(line, sizeof(line), format, values...);
  return line;
}

// Processor time, so that another process on the same core disturbs little.
double seconds(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Best of runs until `budget` seconds have gone.
double best(const std::function<void()>& work, double budget = 0.4) {
  work();
  double least = 1e9, total = 0;
  for (int runs = 0; runs < 3 || total < budget; ++runs) {
    const double t = seconds(work);
    least = std::min(least, t);
    total += t;
  }
  return least;
}

// Page-aligned zero-initialised memory with some varied floats.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_((bytes + 4095) / 4096 * 4096), data_(std::aligned_alloc(4096, static_cast<size_t>(bytes_))) {
    auto* p = static_cast<uint16_t*>(data_);
    // Small normal numbers both as bf16 and as the halves of floats.
    for (int64_t i = 0; i < bytes_ / 2; ++i) p[i] = static_cast<uint16_t>(0x3c00 + (i * 2654435761u >> 13 & 0xff));
  }
  ~Memory() { std::free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  float* floats() { return static_cast<float*>(data_); }
  void* data() { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  void* data_;
};

struct Peaks {
  double flops = 0, bytes = 0;  // a second
  Memory memory{int64_t{256} << 20};

  explicit Peaks(const Kernels& kernels) {
    double done = 0;
    const double t = best([&] { done = kernels.fma_loop(2000000); });
    flops = done / t;
    measure_read(kernels);
    printf("%s: multiply-add peak %.1f GFLOP/s, read %.2f GB/s\n", kernels.name, flops / 1e9, bytes / 1e9);
  }
  // Again before each case that is bound by memory, because other processes share the bandwidth.
  void measure_read(const Kernels& kernels) {
    volatile float sink = 0;
    const double t = best([&] { sink = kernels.read_loop(memory.floats(), memory.bytes() / 4); });
    bytes = static_cast<double>(memory.bytes()) / t;
  }
};

void bench_linear(const Kernels& kernels, Peaks& peaks, WeightType type, int64_t rows, int64_t k, int64_t n) {
  const std::string title =
      text("linear %-4s rows %4ld k %5ld n %6ld", type == WeightType::f32 ? "f32" : type == WeightType::bf16 ? "bf16" : "f16",
           static_cast<long>(rows), static_cast<long>(k), static_cast<long>(n));
  if (!begins_as_wanted(title)) return;
  const int64_t size = type == WeightType::f32 ? 4 : 2, weight_bytes = n * k * size;
  const int64_t copies = std::max<int64_t>(1, (int64_t{192} << 20) / weight_bytes);
  Memory weights(weight_bytes * copies), x(rows * k * 4), y(rows * n * 4), scratch(kernels.linear_scratch(k) * 4);
  LinearArgs a{};
  a.x = x.floats();
  a.x_stride = k;
  a.rows = rows;
  a.type = type;
  a.k = k;
  a.y = y.floats();
  a.y_stride = n;
  a.scratch = scratch.floats();
  int64_t copy = 0;
  const auto once = [&] {
    a.w = static_cast<const char*>(weights.data()) + copy++ % copies * weight_bytes;
    for (a.n0 = 0; a.n0 < n; a.n0 = a.n1) {
      a.n1 = std::min(n, a.n0 + (rows == 1 ? std::max<int64_t>(512, kernels.linear_columns(k)) : kernels.linear_columns(k)));
      kernels.linear(a);
    }
  };
  if (rows == 1) peaks.measure_read(kernels);
  // Few rows: a pass over all copies, so that every weight comes from memory.
  const int64_t passes = rows <= 16 ? copies : 1;
  const double t = best([&] { for (int64_t i = 0; i < passes; ++i) once(); }) / static_cast<double>(passes);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k) / t;
  const double bytes = static_cast<double>(weight_bytes) / t;
  printf("%s: %8.2f ms %7.1f GFLOP/s (%3.0f %%) %6.2f GB/s (%3.0f %%)\n", title.c_str(), t * 1e3, flops / 1e9,
         100 * flops / peaks.flops, bytes / 1e9, 100 * bytes / peaks.bytes);
}

void bench_attention(const Kernels& kernels, const Peaks& peaks, int64_t rows, int64_t group, int64_t head, int64_t keys,
                     bool causal) {
  const std::string title =
      text("attention rows %4ld x %ld, head %3ld, keys %4ld%s", static_cast<long>(rows), static_cast<long>(group),
           static_cast<long>(head), static_cast<long>(keys), causal ? " causal" : "");
  if (!begins_as_wanted(title)) return;
  const int64_t blocks = (keys + kBlockTokens - 1) / kBlockTokens, pad = (head + 15) / 16 * 16;
  const int64_t piece = kernels.attention_rows(group);
  Memory q(rows * group * head * 4), out(rows * group * head * 4), k(blocks * head * kBlockTokens * 4),
      v(blocks * kBlockTokens * pad * 4), scratch(kernels.attention_scratch(piece, group, head, head) * 4);
  std::vector<const float*> k_blocks, v_blocks;
  for (int64_t b = 0; b < blocks; ++b) {
    k_blocks.push_back(k.floats() + b * head * kBlockTokens);
    v_blocks.push_back(v.floats() + b * kBlockTokens * pad);
  }
  AttentionArgs a{};
  a.q_stride = a.out_stride = group * head;
  a.group = group;
  a.head_dim = a.value_dim = head;
  a.k_blocks = k_blocks.data();
  a.v_blocks = v_blocks.data();
  a.keys = keys;
  a.limit_step = causal ? 1 : 0;
  a.scale = 0.125f;
  a.scratch = scratch.floats();
  double pairs = 0;
  const auto once = [&] {
    pairs = 0;
    for (int64_t r = 0; r < rows; r += piece) {
      a.q = q.floats() + r * a.q_stride;
      a.out = out.floats() + r * a.out_stride;
      a.rows = std::min(piece, rows - r);
      a.limit0 = causal ? keys - rows + r + 1 : keys;
      for (int64_t i = 0; i < a.rows; ++i) pairs += static_cast<double>((a.limit0 + i * a.limit_step) * group);
      kernels.attention(a);
    }
  };
  const double t = best(once);
  const double flops = 4.0 * pairs * static_cast<double>(head) / t;
  printf("%s: %8.2f ms %7.1f GFLOP/s (%3.0f %%)\n", title.c_str(), t * 1e3, flops / 1e9, 100 * flops / peaks.flops);
}

// The row operations, by the bytes that they read and write.
void bench_rows(const Kernels& kernels) {
  if (!begins_as_wanted("rows")) return;
  constexpr int64_t rows = 512, width = 1024;
  Memory x(rows * width * 4), y(rows * width * 4), w(width * 4), angles(rows * 64 * 4);
  const auto print = [&](const char* name, double t, double reads) {
    printf("rows %-15s %7.1f us for %ld x %ld, %6.2f GB/s\n", name, t * 1e6, static_cast<long>(rows), static_cast<long>(width),
           (reads + 1) * static_cast<double>(rows * width) * 4 / t / 1e9);
  };
  print("rms_norm", best([&] { kernels.rms_norm(x.floats(), width, w.floats(), 1e-6f, rows, 1, width, y.floats(), width); }), 1);
  print("rms_norm heads", best([&] { kernels.rms_norm(x.floats(), width, w.floats(), 1e-6f, rows, 8, 128, y.floats(), width); }), 1);
  print("layer_norm", best([&] { kernels.layer_norm(x.floats(), width, w.floats(), w.floats(), 1e-6f, rows, width, y.floats(), width); }), 1);
  print("rotary", best([&] { kernels.rotary(x.floats(), width, angles.floats(), angles.floats(), 64, rows, 8, 128, false, y.floats(), width); }), 1);
  print("silu_mul", best([&] { kernels.silu_mul(x.floats(), x.floats(), rows * width, y.floats()); }), 2);
  print("gelu_tanh", best([&] { kernels.activate(x.floats(), Activation::gelu_tanh, rows * width, y.floats()); }), 1);
  print("gelu_erf", best([&] { kernels.activate(x.floats(), Activation::gelu_erf, rows * width, y.floats()); }), 1);
  print("add", best([&] { kernels.add(x.floats(), y.floats(), rows * width, y.floats()); }), 2);
}

struct Shape {
  int64_t k, n;
};

// The widths of qwen3-0.6b and of the 2b vision tower.
constexpr Shape kText[] = {{1024, 4096}, {2048, 1024}, {1024, 6144}, {3072, 1024}};
constexpr Shape kVision[] = {{1024, 3072}, {1024, 4096}, {4096, 1024}};

void run(const Kernels& kernels) {
  Peaks peaks(kernels);
  for (const WeightType type : {WeightType::bf16, WeightType::f32}) {
    for (const int64_t rows : {1, 4, 8, 16, 64, 512})
      for (const Shape& s : kText) bench_linear(kernels, peaks, type, rows, s.k, s.n);
    for (const Shape& s : kVision) bench_linear(kernels, peaks, type, 1700, s.k, s.n);
  }
  bench_linear(kernels, peaks, WeightType::bf16, 1, 1024, 151936);
  bench_linear(kernels, peaks, WeightType::f16, 1, 1024, 6144);
  bench_attention(kernels, peaks, 1700, 1, 64, 1700, false);
  bench_attention(kernels, peaks, 512, 2, 128, 512, true);
  bench_attention(kernels, peaks, 1, 2, 128, 1024, true);
  bench_rows(kernels);
}

}  // namespace
}  // namespace ouzel::bench

int main(int argc, char** argv) {
  const ouzel::Kernels* kernels = ouzel::kernels(argc > 1 ? argv[1] : nullptr);
  if (kernels == nullptr) {
    fprintf(stderr, "kernel_bench: no kernels named %s here\n", argv[1]);
    return 2;
  }
  if (argc > 2) ouzel::bench::wanted = argv[2];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  ouzel::bench::run(*kernels);
  return 0;
}
