#include "tests/case_reader.h"

#include <bit>
#include <stdexcept>
#include <utility>

namespace ouzel::test {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 32;

}  // namespace

CaseReader::CaseReader(const std::string& path) : file_(path, std::ios::binary) {
  file_.exceptions(std::ios::failbit | std::ios::badbit | std::ios::eofbit);
  if (text() != "ouzel cases 1") throw std::runtime_error(path + " is not a case file of version 1");
}

int64_t CaseReader::integer() {
  int64_t value = 0;
  file_.read(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

double CaseReader::number() { return std::bit_cast<double>(integer()); }

std::string CaseReader::text() {
  const int64_t size = integer();
  if (size < 0 || size > 4096) throw std::runtime_error("a text of " + std::to_string(size) + " bytes");
  std::string value(static_cast<size_t>(size), '\0');
  file_.read(value.data(), size);
  return value;
}

std::vector<int> CaseReader::numbers() {
  std::vector<int> values(static_cast<size_t>(integer()));
  for (int& value : values) value = static_cast<int>(integer());
  return values;
}

// Memory of exactly the size, so that a sanitizer sees every byte read past the end.
std::shared_ptr<void> CaseReader::bytes(int64_t count) {
  if (count < 0 || count > kMostBytes) throw std::runtime_error("an array of " + std::to_string(count) + " bytes");
  std::shared_ptr<char[]> memory(new char[static_cast<size_t>(count)]);
  file_.read(memory.get(), count);
  return std::shared_ptr<void>(memory, memory.get());
}

Attribute CaseReader::attribute() {
  const std::string kind = text();
  if (kind == "int") return integer();
  if (kind == "float") return number();
  return text();
}

bool CaseReader::next(Case* found) {
  if (text() == "end") return false;
  *found = Case();
  for (std::string record = text(); record != "done"; record = text()) {
    if (record == "blocks") {
      found->blocks = integer();
    } else if (record == "step") {
      found->steps.push_back(read_step());
    } else {
      read_program(record, &found->program);
    }
  }
  return true;
}

void CaseReader::read_program(const std::string& record, Program* program) {
  // One read for each line: the order of evaluation of arguments is not fixed.
  const std::string name = text();
  if (record == "fold") {
    const std::string of = text();
    program->add_fold(name, of, integer());
  } else if (record == "slot") {
    program->add_slot(name, integer());
  } else if (record == "input") {
    const std::string symbol = text();
    const int64_t width = integer();
    program->add_input(name, symbol, width, text());
  } else if (record == "value") {
    const std::string symbol = text();
    const int64_t width = integer();
    program->add_value(name, symbol, width, static_cast<int>(integer()));
  } else if (record == "matrix") {
    const std::string format = text();
    const int64_t rows = integer(), cols = integer();
    auto memory = bytes(rows * cols * (format == "f32" ? 4 : 2));
    program->add_matrix(name, memory.get(), format, rows, cols, memory);
  } else if (record == "vector") {
    const int64_t size = integer();
    auto memory = bytes(size * 4);
    program->add_vector(name, static_cast<const float*>(memory.get()), size, memory);
  } else if (record == "node") {
    Node node{name, numbers(), 0, {}, {}};
    node.output = static_cast<int>(integer());
    node.weights = numbers();
    for (int64_t left = integer(); left > 0; --left) {
      const std::string key = text();
      node.attributes[key] = attribute();
    }
    program->add_node(std::move(node));
  } else {
    throw std::runtime_error("unknown record " + record);
  }
}

CaseStep CaseReader::read_step() {
  CaseStep step;
  for (int64_t left = integer(); left > 0; --left) {
    const ValueType type = text() == "i32" ? ValueType::i32 : ValueType::f32;
    const int64_t rows = integer(), width = integer();
    step.memory.push_back(bytes(rows * width * 4));
    step.args.inputs.push_back({step.memory.back().get(), rows, width, type});
  }
  for (int64_t left = integer(); left > 0; --left) {
    const auto value = static_cast<int>(integer());
    const int64_t rows = integer(), width = integer();
    std::shared_ptr<float[]> memory(new float[static_cast<size_t>(rows * width)]);
    step.args.wanted.push_back({value, memory.get(), rows, width});
    step.memory.emplace_back(memory, memory.get());
  }
  for (int64_t left = integer(); left > 0; --left) {
    const int64_t start = integer(), count = integer(), past = integer(), blocks = integer();
    step.memory.push_back(bytes(blocks * 4));
    step.args.sequences.push_back({start, count, past, static_cast<const int32_t*>(step.memory.back().get()), blocks});
  }
  if (integer() != 0) {
    step.args.border_count = integer();
    step.memory.push_back(bytes(step.args.border_count * 4));
    step.args.borders = static_cast<const int32_t*>(step.memory.back().get());
  }
  return step;
}

}  // namespace ouzel::test
