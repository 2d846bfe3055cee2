// The parts of the module ouzel._native, one file a subject. No arithmetic here: types, checks and the interpreter lock.
#pragma once

#include <nanobind/nanobind.h>

namespace ouzel {

void bind_machine(nanobind::module_& module);
void bind_program(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_image(nanobind::module_& module);
void bind_quantise(nanobind::module_& module);
void bind_errors();

}  // namespace ouzel
