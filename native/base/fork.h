// Tells whether this process was forked after some moment: the threads of the parent do not exist in the child.
#pragma once

#include <cstdint>

namespace ouzel {

// A number that changes in the child of a fork and nowhere else; always 0 on systems without fork.
uint32_t fork_generation() noexcept;

}  // namespace ouzel
