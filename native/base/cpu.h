// What the processor and the operating system offer, found once.
#pragma once

namespace ouzel {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA and F16C, with the system saving 256-bit registers
  bool avx512 = false;  // AVX-512 F, BW, VL and DQ besides, with the system saving 512-bit registers
  bool avx_vnni = false;     // AVX-VNNI besides AVX2
  bool avx512_vnni = false;  // AVX-512 VNNI besides AVX-512
  bool neon = false;    // AArch64, where it is part of the baseline
  bool dotprod = false;  // AArch64 with sdot
};

// Of the machine this runs on.
CpuFeatures cpu_features();

}  // namespace ouzel
