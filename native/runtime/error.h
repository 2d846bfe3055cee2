// What the runtime throws. The bindings turn these into ouzel.errors.EngineError and ouzel.errors.Cancelled.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace ouzel {

// Something that cannot be done as asked: the operation, what was expected, what came, what to do (may be empty).
class Refused : public std::exception {
 public:
  Refused(std::string operation, std::string expected, std::string got, std::string fix = "")
      : operation(std::move(operation)), expected(std::move(expected)), got(std::move(got)), fix(std::move(fix)) {
    text_ = this->operation + ": expected " + this->expected + ", got " + this->got;
  }
  const char* what() const noexcept override { return text_.c_str(); }

  const std::string operation, expected, got, fix;

 private:
  std::string text_;
};

// The cancel flag was set; nothing that the step made may be used.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "cancelled"; }
};

}  // namespace ouzel
