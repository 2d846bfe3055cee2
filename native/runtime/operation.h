// An operation of a plan, made from a node of the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cache.h"
#include "runtime/frame.h"
#include "runtime/program.h"

namespace ouzel {

class Operation {
 public:
  virtual ~Operation() = default;
  // Throws Refused when the step's indices, sequences or segments do not fit. All operations are checked before one runs.
  virtual void check(const Frame&) const {}
  virtual void run(Frame& frame) const = 0;
};

// Typed access to a node's operands and attributes; everything that does not fit throws Refused naming the node.
class NodeReader {
 public:
  NodeReader(const Program& program, const Node& node) : program_(program), node_(node) {}

  int output() const { return node_.output; }
  const Value& output_value() const { return value(node_.output); }
  bool has_input(size_t i) const { return i < node_.inputs.size(); }
  int input(size_t i, ValueType type = ValueType::f32) const;
  const Value& value(int number) const { return program_.values()[static_cast<size_t>(number)]; }

  bool has_weight(size_t i) const { return i < node_.weights.size(); }
  const Weight& matrix(size_t i) const;
  const float* vector(size_t i, int64_t size) const;

  int64_t integer(const std::string& name) const;
  float number(const std::string& name) const;
  const std::string& text(const std::string& name) const;

  // Input i must have the rows, and unless `width` says otherwise the width, of the output.
  int like_output(size_t i) const { return like_output(i, output_value().width); }
  int like_output(size_t i, int64_t width) const;
  void require(bool fits, const std::string& expected) const;
  // "op name", for messages.
  std::string where() const;

 private:
  const Attribute& attribute(const std::string& name) const;

  const Program& program_;
  const Node& node_;
};

using OperationMaker = std::unique_ptr<Operation> (*)(const NodeReader&);

std::unique_ptr<Operation> make_embed(const NodeReader& node);
std::unique_ptr<Operation> make_linear(const NodeReader& node);
std::unique_ptr<Operation> make_rms_norm(const NodeReader& node);
std::unique_ptr<Operation> make_layer_norm(const NodeReader& node);
std::unique_ptr<Operation> make_rotary(const NodeReader& node);
std::unique_ptr<Operation> make_attention(const NodeReader& node);
std::unique_ptr<Operation> make_silu_mul(const NodeReader& node);
std::unique_ptr<Operation> make_gelu(const NodeReader& node);
std::unique_ptr<Operation> make_add(const NodeReader& node);
std::unique_ptr<Operation> make_mul(const NodeReader& node);
std::unique_ptr<Operation> make_take_rows(const NodeReader& node);
std::unique_ptr<Operation> make_put_rows(const NodeReader& node);
std::unique_ptr<Operation> make_add_rows(const NodeReader& node);
std::unique_ptr<Operation> make_fold_rows(const NodeReader& node);
std::unique_ptr<Operation> make_blend_rows(const NodeReader& node);

// The operation of a node; throws Refused for a name without a maker.
std::unique_ptr<Operation> make_operation(const Program& program, const Node& node);

// The cache of the program's causal attention nodes, by layer. Throws Refused unless they are numbered from 0.
std::vector<CacheLayer> cache_layers(const Program& program);

}  // namespace ouzel
