#include "kernels/quantise/quantise.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "bindings/bindings.h"
#include "runtime/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ouzel {
namespace {

using Source = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Importance = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Packed = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

kernels::StoredType stored_type(const std::string& name, size_t item) {
  if (name == "F32" && item == 4) return kernels::StoredType::f32;
  if (name == "BF16" && item == 2) return kernels::StoredType::bf16;
  if (name == "F16" && item == 2) return kernels::StoredType::f16;
  throw Refused("quantising", "elements of F32, BF16 or F16", name + " in elements of " + std::to_string(item) + " bytes");
}

void require_shapes(const Source& source, const std::optional<Importance>& importance, const Packed& out, size_t bytes) {
  const bool fits = out.shape(0) == (source.shape(0) + 15) / 16 && out.shape(1) == (source.shape(1) + 31) / 32 &&
                    out.shape(2) == bytes && (!importance || importance->shape(0) == source.shape(1));
  if (!fits) throw Refused("quantising", "a result and an importance that fit the matrix", "other sizes");
}

int64_t quantise_rows(const Source& source, const std::string& dtype, int bits, bool minimum,
                      const std::optional<Importance>& importance, bool search, const Packed& out) {
  if (bits != 4 && (bits != 8 || minimum)) throw Refused("quantising", "8 or 4 bits", std::to_string(bits));
  require_shapes(source, importance, out, kernels::quantised_block_bytes(bits, minimum));
  const kernels::QuantiseArgs args{
      .source = source.data(),
      .type = stored_type(dtype, source.itemsize()),
      .rows = source.shape(0),
      .columns = source.shape(1),
      .bits = bits,
      .minimum = minimum,
      .importance = importance ? importance->data() : nullptr,
      .search = search,
      .out = out.data(),
  };
  const nb::gil_scoped_release release;
  return kernels::quantise(args);
}

}  // namespace

void bind_quantise(nb::module_& module) {
  module.def("quantise_rows", &quantise_rows, nb::arg("source").noconvert(), "dtype"_a, "bits"_a, "minimum"_a,
             nb::arg("importance").none(), "search"_a, nb::arg("out").noconvert(),
             "Quantises a matrix into packed bytes; see ouzel.weights.quantise. Returns the flat place of a value that cannot\n"
             "be stored, or -1. Raises EngineError for sizes and types that do not fit.");
}

}  // namespace ouzel
