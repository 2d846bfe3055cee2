// Tests of every kernel on every table that this machine can run. Prints a line for each failure and a summary.
//   kernel_tests            run the checks; all tables must give the same bits
//   kernel_tests --digest   besides, a line "table operation digest" for each, to compare with other machines
//   kernel_tests --tables   the tables that this machine can run
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "kernels/choice.h"
#include "kernels/kernels.h"
#include "tests/kernel_test_attention.h"
#include "tests/kernel_test_linear.h"
#include "tests/kernel_test_packed.h"
#include "tests/kernel_test_rows.h"

namespace ouzel::test {
namespace {

struct Operation {
  const char* name;
  Output (*run)(const Kernels&, Checks&);
};

constexpr Operation kOperations[] = {
    {"linear", test_linear},
    {"linear_fusion", test_linear_fusion},
    {"quantise", test_quantise},
    {"packed_linear", test_packed_linear},
    {"decode_packed", test_decode_packed},
    {"attention", test_attention},
    {"attention_extremes", test_attention_extremes},
    {"cache_halves", test_cache_halves},
    {"rms_norm", test_rms_norm},
    {"layer_norm", test_layer_norm},
    {"rotary", test_rotary},
    {"activate", test_activate},
    {"elementwise", test_elementwise},
    {"decode_all", test_decode_all},
    {"stored_rows", test_stored_rows},
    {"all_finite", test_all_finite},
    {"peaks", test_peaks},
};

// FNV-1a over the bits of the results.
uint64_t digest(const Output& results) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : results) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3u;
  }
  return hash;
}

size_t first_difference(const Output& a, const Output& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (memcmp(&a[i], &b[i], sizeof(float)) != 0) return i;
  return std::min(a.size(), b.size());
}

void test_table(const Kernels& kernels, bool print, std::map<std::string, Output>& agreed, Checks& checks) {
  for (const Operation& operation : kOperations) {
    checks.begin(kernels.name, operation.name);
    const Output results = operation.run(kernels, checks);
    if (print) printf("%s %s %016llx\n", kernels.name, operation.name, static_cast<unsigned long long>(digest(results)));
    const Output& first = agreed.try_emplace(operation.name, results).first->second;
    checks.expect(digest(first) == digest(results), "other bits than the first table's, from result %zu on",
                  first_difference(first, results));
  }
}

bool same(const char* a, const char* b) { return a == b || (a != nullptr && b != nullptr && strcmp(a, b) == 0); }

// The choice by features alone, whatever machine this is.
void test_choice(Checks& checks) {
  checks.begin("-", "choice");
  CpuFeatures none, avx2, avx512;
  avx2.avx2 = avx512.avx2 = avx512.avx512 = true;
  checks.expect(same(choose_kernels(none, ""), "plain"), "no features and no cap");
  checks.expect(same(choose_kernels(avx512, "plain"), "plain"), "a cap of plain");
  checks.expect(choose_kernels(avx512, "sse9") == nullptr, "an unknown cap is refused");
#if defined(__x86_64__)
  checks.expect(same(choose_kernels(avx512, nullptr), "avx512"), "the widest is chosen");
  checks.expect(same(choose_kernels(avx512, "avx2"), "avx2"), "a cap lowers the choice");
  checks.expect(same(choose_kernels(avx2, ""), "avx2"), "avx2 without avx512");
  CpuFeatures vnni = avx512, small_vnni = avx2;
  vnni.avx512_vnni = vnni.avx_vnni = small_vnni.avx_vnni = true;
  checks.expect(same(choose_kernels(vnni, ""), "avx512vnni"), "VNNI of 512 bits before that of 256");
  checks.expect(same(choose_kernels(vnni, "avx512"), "avx512"), "a cap leaves VNNI out");
  checks.expect(same(choose_kernels(small_vnni, ""), "avxvnni"), "VNNI of 256 bits before AVX2");
  checks.expect(choose_kernels(avx512, "avx512vnni") == nullptr, "VNNI needs its feature");
  checks.expect(choose_kernels(avx2, "avx512") == nullptr, "a cap above the features is refused");
  checks.expect(choose_kernels(avx512, "neon") == nullptr, "a cap of another architecture is refused");
#elif defined(__aarch64__)
  CpuFeatures neon;
  neon.neon = true;
  checks.expect(same(choose_kernels(neon, nullptr), "neon"), "the widest is chosen");
  CpuFeatures dots = neon;
  dots.dotprod = true;
  checks.expect(same(choose_kernels(dots, ""), "neondot"), "sdot before baseline NEON");
  checks.expect(choose_kernels(neon, "avx2") == nullptr, "a cap of another architecture is refused");
#endif
  checks.expect(same(kernels(nullptr)->name, kernels_available()[0]), "no cap gives the widest available");
  checks.expect(kernels("nonsense") == nullptr, "an unknown name gives no table");
}

int run(bool print) {
  Checks checks;
  test_choice(checks);
  std::map<std::string, Output> agreed;
  for (const char* const* name = kernels_available(); *name != nullptr; ++name)
    test_table(*kernels(*name), print, agreed, checks);
  return checks.finish();
}

}  // namespace
}  // namespace ouzel::test

int main(int argc, char** argv) {
  const std::string option = argc > 1 ? argv[1] : "";
  if (option == "--tables") {
    for (const char* const* name = ouzel::kernels_available(); *name != nullptr; ++name) printf("%s\n", *name);
    return 0;
  }
  if (argc > 2 || (!option.empty() && option != "--digest")) {
    fprintf(stderr, "usage: kernel_tests [--digest | --tables]\n");
    return 2;
  }
  return ouzel::test::run(option == "--digest");
}
