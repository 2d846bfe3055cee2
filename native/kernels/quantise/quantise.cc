#include "kernels/quantise/quantise.h"

#include "base/cpu.h"

namespace ouzel::kernels {

namespace plain {
int64_t quantise(const QuantiseArgs& args);
}
namespace avx2 {
int64_t quantise(const QuantiseArgs& args);
}

int64_t quantise(const QuantiseArgs& args) {
#if defined(__x86_64__)
  static const bool wide = cpu_features().avx2;
  if (wide) return avx2::quantise(args);
#endif
  return plain::quantise(args);
}

}  // namespace ouzel::kernels
