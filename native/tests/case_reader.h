// Reads the case files that tests/native/case_file.py writes: cases of the operation table as records, for machines
// without Python. All numbers are little-endian 64-bit; texts and arrays carry their length.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "runtime/frame.h"
#include "runtime/program.h"

namespace ouzel::test {

// One step with the memory that its arrays point to.
struct CaseStep {
  StepArgs args;
  std::vector<std::shared_ptr<void>> memory;
};

struct Case {
  Program program;
  int64_t blocks = 0;
  std::vector<CaseStep> steps;
};

class CaseReader {
 public:
  // Throws std::runtime_error when the file cannot be read or ends early.
  explicit CaseReader(const std::string& path);
  // False when there is no further case.
  bool next(Case* found);

 private:
  int64_t integer();
  double number();
  std::string text();
  std::vector<int> numbers();
  std::shared_ptr<void> bytes(int64_t count);
  Attribute attribute();
  void read_program(const std::string& record, Program* program);
  CaseStep read_step();

  std::ifstream file_;
};

}  // namespace ouzel::test
