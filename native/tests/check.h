// Counting of checks for the native tests: one line on standard output for each failure, a summary at the end.
#pragma once

#include <cstdarg>
#include <cstdio>

namespace ouzel::test {

class Checks {
 public:
  // Prefix of the following failures, such as the table and the operation.
  void begin(const char* table, const char* operation) {
    table_ = table;
    operation_ = operation;
  }

  [[gnu::format(printf, 3, 4)]] bool expect(bool good, const char* format, ...) {
    if (good) {
      ++passed_;
      return true;
    }
    ++failed_;
    if (failed_ > kPrinted) return false;
    printf("FAIL %s %s: ", table_, operation_);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    return false;
  }

  int finish() const {
    if (failed_ > kPrinted) printf("... and %ld more\n", failed_ - kPrinted);
    printf("%ld passed, %ld failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  static constexpr long kPrinted = 40;
  const char* table_ = "";
  const char* operation_ = "";
  long passed_ = 0, failed_ = 0;
};

}  // namespace ouzel::test
