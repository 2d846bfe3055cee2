#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bindings/bindings.h"
#include "kernels/resize/resize.h"
#include "runtime/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ouzel {
namespace {

using Picture = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, uint8_t, nb::ndim<3>>;

// Sides are ints in the kernel, and a row of pixels must be one too.
constexpr size_t kMostRowBytes = size_t{1} << 30;

void require_size(size_t height, size_t width, size_t channels) {
  const bool fits = height >= 1 && width >= 1 && channels >= 1 && height < kMostRowBytes && width < kMostRowBytes &&
                    channels <= 16 && width * channels <= kMostRowBytes;
  if (fits) return;
  throw Refused("resizing a picture", "sides of at least 1 and 1 to 16 channels",
                std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels));
}

Result resize_u8(const Picture& source, int height, int width, const std::string& filter) {
  kernels::ResizeFilter chosen{};
  if (!kernels::parse_resize_filter(filter, &chosen)) {
    throw Refused("resizing a picture", "filter nearest, box, bilinear, bicubic or lanczos", filter);
  }
  const size_t channels = source.shape(2);
  const auto rows = static_cast<size_t>(std::max(height, 0)), columns = static_cast<size_t>(std::max(width, 0));
  require_size(source.shape(0), source.shape(1), channels);
  require_size(rows, columns, channels);
  auto memory = std::make_unique<uint8_t[]>(rows * columns * channels);
  {
    const nb::gil_scoped_release release;
    kernels::resize_u8(source.data(), static_cast<int>(source.shape(0)), static_cast<int>(source.shape(1)),
                       static_cast<int>(channels), memory.get(), height, width, chosen);
  }
  uint8_t* data = memory.release();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return Result(data, {rows, columns, channels}, owner);
}

}  // namespace

void bind_image(nb::module_& module) {
  module.def("resize_u8", &resize_u8, nb::arg("source").noconvert(), "height"_a, "width"_a, "filter"_a,
             "A picture [height, width, channels] of uint8 resized with \"nearest\", \"box\", \"bilinear\", \"bicubic\" or\n"
             "\"lanczos\". Raises EngineError for an unknown filter or an empty side.");
}

}  // namespace ouzel
