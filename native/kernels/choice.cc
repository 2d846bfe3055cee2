#include "kernels/choice.h"

#include <cstring>
#include <iterator>

#include "kernels/kernels.h"

namespace ouzel {

#define OUZEL_KERNELS(name, needs) \
  namespace name {                 \
  extern const Kernels table;      \
  }
#include "kernels/kernels.inc"

namespace {

struct Entry {
  const Kernels* table;
  bool (*fits)(const CpuFeatures&);
};

constexpr Entry kEntries[] = {
#define OUZEL_KERNELS(name, needs) {&name::table, [](const CpuFeatures& f) { return static_cast<void>(f), needs; }},
#include "kernels/kernels.inc"
};

struct Available {
  const char* names[std::size(kEntries) + 1] = {};

  Available() {
    const CpuFeatures features = cpu_features();
    int count = 0;
    for (const Entry& entry : kEntries)
      if (entry.fits(features)) names[count++] = entry.table->name;
  }
};

}  // namespace

const char* choose_kernels(const CpuFeatures& features, const char* cap) {
  const bool capped = cap != nullptr && cap[0] != '\0';
  for (const Entry& entry : kEntries)
    if (entry.fits(features) && (!capped || strcmp(entry.table->name, cap) == 0)) return entry.table->name;
  return nullptr;
}

const Kernels* kernels(const char* cap) {
  const char* chosen = choose_kernels(cpu_features(), cap);
  if (chosen == nullptr) return nullptr;
  for (const Entry& entry : kEntries)
    if (strcmp(entry.table->name, chosen) == 0) return entry.table;
  return nullptr;
}

const char* const* kernels_available() {
  static const Available available;
  return available.names;
}

}  // namespace ouzel
