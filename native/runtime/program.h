// The description of a plan: a checked graph with its memory plan and weights, in numbers instead of names. It is built
// value by value and then given to a Plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/kernels.h"

namespace ouzel {

enum class ValueType : uint8_t { f32, i32 };
enum class Home : uint8_t { input, slot };

// A 2-D array [rows of `symbol`, width], dense. `place` is the number of the input or of the slot it lives in.
struct Value {
  std::string name;
  int symbol;
  int64_t width;
  ValueType type;
  Home home;
  int place;
};

struct Slot {
  int symbol;
  int64_t width;  // in floats
};

// A matrix [rows][cols], or a vector of `cols` floats when rows is 0: dense and aligned to its element, or packed.
struct Weight {
  std::string name;
  const void* data;
  WeightType type;
  int64_t rows, cols;

  // Of a matrix that is not packed.
  int64_t element_bytes() const { return type == WeightType::f32 ? 4 : 2; }
};

using Attribute = std::variant<int64_t, double, std::string>;

struct Node {
  std::string op;
  std::vector<int> inputs;
  int output;
  std::vector<int> weights;
  std::map<std::string, Attribute> attributes;
};

// Symbol `symbol` has as many rows as `of` divided by `count`.
struct Fold {
  int symbol, of;
  int64_t count;
};

// Every add_ function checks its numbers, throws Refused and returns the number of what it added.
class Program {
 public:
  void add_fold(const std::string& symbol, const std::string& of, int64_t count);
  int add_slot(const std::string& symbol, int64_t width);
  int add_input(const std::string& name, const std::string& symbol, int64_t width, const std::string& dtype);
  int add_value(const std::string& name, const std::string& symbol, int64_t width, int slot);
  // `owner` keeps `data` alive as long as the program and the plans made from it.
  int add_matrix(const std::string& name, const void* data, const std::string& format, int64_t rows, int64_t cols,
                 std::shared_ptr<void> owner);
  int add_vector(const std::string& name, const float* data, int64_t size, std::shared_ptr<void> owner);
  void add_node(Node node);

  const std::vector<std::string>& symbols() const { return symbols_; }
  const std::vector<Fold>& folds() const { return folds_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<int>& inputs() const { return inputs_; }
  const std::vector<Weight>& weights() const { return weights_; }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  int symbol(const std::string& name);

  std::vector<std::string> symbols_;
  std::vector<Fold> folds_;
  std::vector<Slot> slots_;
  std::vector<Value> values_;
  std::vector<int> inputs_;  // value numbers
  std::vector<Weight> weights_;
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<void>> owners_;
};

}  // namespace ouzel
