#include "runtime/program.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "runtime/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ouzel {
namespace {

using Matrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Array>
std::shared_ptr<void> owner_of(const Array& array) {
  return std::make_shared<Array>(array);
}

bool holds(const Matrix& array, const std::string& format) {
  if (format == "f32") return array.dtype() == nb::dtype<float>();
  if (format != "f16" && format != "bf16") return false;
  const bool half = array.dtype() == nb::dlpack::dtype{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  return array.dtype() == nb::dtype<uint16_t>() || (format == "f16" && half);
}

int add_matrix(Program& program, const std::string& name, const Matrix& array, const std::string& format) {
  if (!holds(array, format)) {
    throw Refused("building a plan", "weight " + name + " as an array of " + format, "another type");
  }
  return program.add_matrix(name, array.data(), format, static_cast<int64_t>(array.shape(0)),
                            static_cast<int64_t>(array.shape(1)), owner_of(array));
}

int add_packed(Program& program, const std::string& name, const Bytes& array, const std::string& format, int64_t rows,
               int64_t cols) {
  const int number = program.add_matrix(name, array.data(), format, rows, cols, owner_of(array));
  const WeightType type = program.weights()[static_cast<size_t>(number)].type;
  const auto bytes = static_cast<int64_t>(array.nbytes());
  if (!is_packed(type) || bytes != packed_bytes(type, rows, cols)) {
    throw Refused("building a plan", "weight " + name + " as packed bytes of [" + std::to_string(rows) + ", " +
                  std::to_string(cols) + "] in " + format, std::to_string(bytes) + " bytes");
  }
  return number;
}

int add_vector(Program& program, const std::string& name, const Vector& array) {
  return program.add_vector(name, array.data(), static_cast<int64_t>(array.shape(0)), owner_of(array));
}

void add_node(Program& program, std::string op, std::vector<int> inputs, int output, std::vector<int> weights,
              std::map<std::string, Attribute> attributes) {
  program.add_node({std::move(op), std::move(inputs), output, std::move(weights), std::move(attributes)});
}

}  // namespace

void bind_program(nb::module_& module) {
  nb::class_<Program>(module, "Program", "A graph with its memory plan and weights, in numbers; made piece by piece.")
      .def(nb::init<>())
      .def("add_fold", &Program::add_fold, "symbol"_a, "of"_a, "count"_a,
           "Symbol `symbol` has as many rows as `of` divided by `count`.")
      .def("add_slot", &Program::add_slot, "symbol"_a, "width"_a, "A region of the arena; returns its number.")
      .def("add_input", &Program::add_input, "name"_a, "symbol"_a, "width"_a, "dtype"_a,
           "A value that the caller gives, \"f32\" or \"i32\"; returns the value's number.")
      .def("add_value", &Program::add_value, "name"_a, "symbol"_a, "width"_a, "slot"_a,
           "A value that lives in a slot; returns its number.")
      .def("add_matrix", &add_matrix, "name"_a, nb::arg("array").noconvert(), "format"_a,
           "A weight [rows, cols] in \"f32\", \"f16\" or \"bf16\" (as uint16), kept without a copy; returns its number.")
      .def("add_packed", &add_packed, "name"_a, nb::arg("array").noconvert(), "format"_a, "rows"_a, "cols"_a,
           "A weight [rows, cols] in \"q8\", \"q4\" or \"q4m\" as packed bytes, kept without a copy; returns its number.")
      .def("add_vector", &add_vector, "name"_a, nb::arg("array").noconvert(),
           "A weight [size] in float32, kept without a copy; returns its number.")
      .def("add_node", &add_node, "op"_a, "inputs"_a, "output"_a, "weights"_a, "attributes"_a,
           "An operation on values and weights by number.");
}

}  // namespace ouzel
