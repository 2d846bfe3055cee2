// C++ exceptions of the runtime as the exceptions of ouzel.errors.
#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "runtime/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ouzel {
namespace {

nb::object errors(const char* name) { return nb::module_::import_("ouzel.errors").attr(name); }

void set(const nb::object& type, const nb::object& error) { PyErr_SetObject(type.ptr(), error.ptr()); }

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Refused& refused) {
    const nb::object type = errors("EngineError");
    const nb::object fix = refused.fix.empty() ? nb::none() : nb::object(nb::str(refused.fix.c_str()));
    set(type, type(refused.operation.c_str(), "expected"_a = refused.expected.c_str(), "got"_a = refused.got.c_str(),
                   "fix"_a = fix));
  } catch (const Cancelled&) {
    const nb::object type = errors("Cancelled");
    set(type, type());
  }
}

}  // namespace

void bind_errors() { nb::register_exception_translator(translate); }

}  // namespace ouzel
