// Choice of an ISA's table.
#pragma once

#include "base/cpu.h"

namespace ouzel {

// Name of the widest table that `features` allow, lowered by `cap` (null or empty: no cap). Null when the cap is not a table
// of this architecture or needs features that are absent. A pure function of its arguments.
const char* choose_kernels(const CpuFeatures& features, const char* cap);

}  // namespace ouzel
