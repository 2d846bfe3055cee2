#include "runtime/plan.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "runtime/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ouzel {
namespace {

using Input = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Index = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flag = nb::ndarray<int32_t, nb::shape<1>, nb::c_contig, nb::device::cpu>;
using Sequence = std::tuple<int64_t, int64_t, int64_t, Index>;

InputArray input_array(const Input& array) {
  const bool integer = array.dtype() == nb::dtype<int32_t>();
  if (!integer && array.dtype() != nb::dtype<float>()) throw Refused("step", "float32 or int32 inputs", "another type");
  return {array.data(), static_cast<int64_t>(array.shape(0)), static_cast<int64_t>(array.shape(1)),
          integer ? ValueType::i32 : ValueType::f32};
}

void poll_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void run(Plan& plan, const std::vector<Input>& inputs, const std::vector<std::pair<int, Output>>& wanted,
         const std::vector<Sequence>& sequences, const std::optional<Index>& borders, const std::optional<Flag>& cancel,
         bool poll) {
  StepArgs step;
  for (const Input& array : inputs) step.inputs.push_back(input_array(array));
  for (const auto& [value, array] : wanted) {
    step.wanted.push_back({value, array.data(), static_cast<int64_t>(array.shape(0)), static_cast<int64_t>(array.shape(1))});
  }
  for (const auto& [start, count, past, blocks] : sequences) {
    step.sequences.push_back({start, count, past, blocks.data(), static_cast<int64_t>(blocks.shape(0))});
  }
  if (borders) {
    step.borders = borders->data();
    step.border_count = static_cast<int64_t>(borders->shape(0));
  }
  if (cancel) step.cancel = cancel->data();
  if (poll) step.poll = poll_signals;
  const nb::gil_scoped_release release;
  plan.run(step);
}

}  // namespace

void bind_plan(nb::module_& module) {
  nb::class_<Plan>(module, "Plan", "A program ready to run on a machine, with its cache.")
      .def(nb::init<std::shared_ptr<Machine>, Program, const std::string&>(), "machine"_a, "program"_a, "cache"_a = "f32",
           "cache: what keys and values are kept in, \"f32\", \"f16\" or \"q8\". Raises EngineError for another one and\n"
           "when a node of the program is not sound.")
      .def("run", &run, nb::arg("inputs").noconvert(), nb::arg("wanted").noconvert(), nb::arg("sequences").noconvert(),
           nb::arg("borders").noconvert().none(), nb::arg("cancel").noconvert().none(), "poll"_a,
           "Runs one step without the interpreter lock. inputs: arrays in the program's order; wanted: value numbers and\n"
           "the arrays that get their copies; sequences: (start, count, past, blocks); borders: of the segments, None for\n"
           "one; cancel: a flag that stops the step when it is not 0; poll: look at the interpreter's signals meanwhile.")
      .def("ensure_blocks", &Plan::ensure_blocks, "count"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Makes at least `count` cache blocks.")
      .def_prop_ro("blocks", &Plan::blocks, "Cache blocks held now.")
      .def_prop_ro("cache_bytes", &Plan::cache_bytes, "Bytes of cache memory held now.");
}

}  // namespace ouzel
