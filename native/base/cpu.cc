#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
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

constexpr unsigned kAvxVnni = 1u << 4;    // of leaf 7, part 1, register a

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
  features.avx512_vnni = features.avx512 && has(c, bit_AVX512VNNI);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) features.avx_vnni = features.avx2 && has(a, kAvxVnni);
  return features;
}

#elif defined(__aarch64__)

namespace {

#if defined(__linux__)
bool has_dotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#else
// Every AArch64 machine of Apple's desktop systems has it; elsewhere nobody is asked.
bool has_dotprod() {
#if defined(__APPLE__)
  return true;
#else
  return false;
#endif
}
#endif

}  // namespace

CpuFeatures cpu_features() {
  CpuFeatures features;
  features.neon = true;
  features.dotprod = has_dotprod();
  return features;
}

#else

CpuFeatures cpu_features() { return {}; }

#endif

}  // namespace ouzel
