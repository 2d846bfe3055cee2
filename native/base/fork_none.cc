#include "base/fork.h"

namespace ouzel {

uint32_t fork_generation() noexcept { return 0; }

}  // namespace ouzel
