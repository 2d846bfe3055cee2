#include "bindings/bindings.h"

NB_MODULE(_native, module) {
  module.doc() = "The native core of Ouzel: kernels, threads and plans. See ouzel.engines.native.";
  // A model that is still alive when the interpreter ends is no mistake of its user.
  nanobind::set_leak_warnings(false);
  ouzel::bind_errors();
  ouzel::bind_machine(module);
  ouzel::bind_program(module);
  ouzel::bind_plan(module);
  ouzel::bind_image(module);
  ouzel::bind_quantise(module);
}
