// One turn of a spinning loop: lets the other hardware thread of the core run.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#elif defined(_MSC_VER)
#include <intrin.h>
#endif

namespace ouzel {

inline void cpu_pause() noexcept {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(_MSC_VER)
  __yield();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ouzel
