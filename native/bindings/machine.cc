#include "runtime/machine.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>

#include "bindings/bindings.h"
#include "runtime/peaks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ouzel {

void bind_machine(nb::module_& module) {
  nb::class_<Machine>(module, "Machine", "Kernels of one instruction set and a pool of threads.")
      .def(nb::init<const std::string&, int>(), "isa"_a, "threads"_a,
           "isa: the widest instruction set to use, or \"\". Raises EngineError when it is not available.")
      .def_prop_ro("isa", [](const Machine& self) { return std::string(self.kernels().name); }, "Name of the kernels.")
      .def_prop_ro("threads", [](Machine& self) { return self.pool().threads(); }, "Threads, the caller's among them.");

  module.def("isa", [](const std::string& cap) { return std::string(kernels_for(cap).name); }, "cap"_a = "",
             "Name of the kernels that a machine made with this cap uses.");
  module.def("isas_available", &available_isas, "Instruction sets that this machine can run, widest first.");
  module.def(
      "peaks",
      [](int threads, const std::string& isa) {
        const nb::gil_scoped_release release;
        Machine machine(isa, threads);
        const Peaks peaks = measure_peaks(machine);
        return std::make_tuple(peaks.flops, peaks.read_bytes);
      },
      "threads"_a, "isa"_a = "",
      "Float32 operations a second and bytes read a second that the machine reaches now; takes about a second.");
  module.def(
      "dot_peak",
      [](int threads, const std::string& isa) {
        const nb::gil_scoped_release release;
        Machine machine(isa, threads);
        return measure_dot_peak(machine);
      },
      "threads"_a, "isa"_a = "",
      "Integer operations a second that the machine reaches now in dot products of bytes; takes less than a second.");
}

}  // namespace ouzel
