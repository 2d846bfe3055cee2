#include "runtime/program.h"

#include <algorithm>
#include <utility>

#include "runtime/error.h"

namespace ouzel {
namespace {

// Sizes beyond this are mistakes; products of two of them still fit in 64 bits.
constexpr int64_t kMostWidth = int64_t{1} << 30;

void require_width(const std::string& what, int64_t width) {
  if (width < 1 || width > kMostWidth) throw Refused("building a plan", "a width of " + what, std::to_string(width));
}

void require_number(const std::string& what, int number, size_t count) {
  if (number >= 0 && static_cast<size_t>(number) < count) return;
  throw Refused("building a plan", what + " below " + std::to_string(count), std::to_string(number));
}

WeightType weight_type(const std::string& name, const std::string& format) {
  static const std::map<std::string, WeightType> types = {
      {"f32", WeightType::f32}, {"bf16", WeightType::bf16}, {"f16", WeightType::f16},
      {"q8", WeightType::q8},   {"q4", WeightType::q4},     {"q4m", WeightType::q4m}};
  const auto found = types.find(format);
  if (found == types.end()) throw Refused("building a plan", "weight " + name + " in f32, bf16, f16, q8, q4 or q4m", format);
  return found->second;
}

}  // namespace

int Program::symbol(const std::string& name) {
  const auto found = std::find(symbols_.begin(), symbols_.end(), name);
  if (found != symbols_.end()) return static_cast<int>(found - symbols_.begin());
  symbols_.push_back(name);
  return static_cast<int>(symbols_.size()) - 1;
}

void Program::add_fold(const std::string& name, const std::string& of, int64_t count) {
  if (count < 1) throw Refused("building a plan", "a fold of 1 or more rows", std::to_string(count));
  const int from = symbol(of);
  folds_.push_back({symbol(name), from, count});
}

int Program::add_slot(const std::string& rows, int64_t width) {
  require_width("a slot of " + rows, width);
  slots_.push_back({symbol(rows), width});
  return static_cast<int>(slots_.size()) - 1;
}

int Program::add_input(const std::string& name, const std::string& rows, int64_t width, const std::string& dtype) {
  require_width(name, width);
  if (dtype != "f32" && dtype != "i32") throw Refused("building a plan", name + " as f32 or i32", dtype);
  const ValueType type = dtype == "f32" ? ValueType::f32 : ValueType::i32;
  values_.push_back({name, symbol(rows), width, type, Home::input, static_cast<int>(inputs_.size())});
  inputs_.push_back(static_cast<int>(values_.size()) - 1);
  return inputs_.back();
}

int Program::add_value(const std::string& name, const std::string& rows, int64_t width, int slot) {
  require_width(name, width);
  require_number("slot of " + name, slot, slots_.size());
  const Slot& home = slots_[static_cast<size_t>(slot)];
  const int rows_symbol = symbol(rows);
  if (home.symbol != rows_symbol || home.width < width) {
    throw Refused("building a plan", name + " in a slot of its rows and width", "slot " + std::to_string(slot));
  }
  values_.push_back({name, rows_symbol, width, ValueType::f32, Home::slot, slot});
  return static_cast<int>(values_.size()) - 1;
}

int Program::add_matrix(const std::string& name, const void* data, const std::string& format, int64_t rows,
                        int64_t cols, std::shared_ptr<void> owner) {
  require_width(name, rows);
  require_width(name, cols);
  weights_.push_back({name, data, weight_type(name, format), rows, cols});
  owners_.push_back(std::move(owner));
  return static_cast<int>(weights_.size()) - 1;
}

int Program::add_vector(const std::string& name, const float* data, int64_t size, std::shared_ptr<void> owner) {
  require_width(name, size);
  weights_.push_back({name, data, WeightType::f32, 0, size});
  owners_.push_back(std::move(owner));
  return static_cast<int>(weights_.size()) - 1;
}

void Program::add_node(Node node) {
  for (int input : node.inputs) require_number("an operand of " + node.op, input, values_.size());
  for (int weight : node.weights) require_number("a weight of " + node.op, weight, weights_.size());
  require_number("the result of " + node.op, node.output, values_.size());
  if (values_[static_cast<size_t>(node.output)].home != Home::slot) {
    throw Refused("building a plan", node.op + " to write a value with a slot", "an input");
  }
  nodes_.push_back(std::move(node));
}

}  // namespace ouzel
