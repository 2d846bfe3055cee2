#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ouzel {

#if defined(__x86_64__)

namespace {

// The register states that the operating system saves (XCR0); zero when it does not say.
unsigned saved_states() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr unsigned kStatesYmm = 0x06;  // SSE and the upper halves of ymm
constexpr unsigned kStatesZmm = 0xe6;  // besides: masks, upper halves of zmm, zmm16-31

bool has(unsigned states, unsigned wanted) { return (states & wanted) == wanted; }

}  // namespace

CpuFeatures cpu_features() {
  CpuFeatures features;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  const bool fma_f16c = has(c, bit_FMA | bit_F16C | bit_AVX);
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  const unsigned states = saved_states();
  features.avx2 = fma_f16c && has(b, bit_AVX2) && has(states, kStatesYmm);
  features.avx512 = features.avx2 && has(b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) &&
                    has(states, kStatesZmm);
  return features;
}

#elif defined(__aarch64__)

CpuFeatures cpu_features() {
  CpuFeatures features;
  features.neon = true;
  return features;
}

#else

CpuFeatures cpu_features() { return {}; }

#endif

}  // namespace ouzel
