#include "runtime/operation.h"

#include <map>

#include "runtime/error.h"

namespace ouzel {
namespace {

const std::map<std::string, OperationMaker>& makers() {
  static const std::map<std::string, OperationMaker> table = {
      {"embed", make_embed},           {"linear", make_linear},       {"rms_norm", make_rms_norm},
      {"layer_norm", make_layer_norm}, {"rotary", make_rotary},       {"attention", make_attention},
      {"silu_mul", make_silu_mul},     {"gelu", make_gelu},           {"add", make_add},
      {"mul", make_mul},               {"take_rows", make_take_rows}, {"put_rows", make_put_rows},
      {"add_rows", make_add_rows},     {"fold_rows", make_fold_rows}, {"blend_rows", make_blend_rows},
  };
  return table;
}

}  // namespace

std::string NodeReader::where() const { return node_.op + " " + output_value().name; }

void NodeReader::require(bool fits, const std::string& expected) const {
  if (!fits) throw Refused(where(), expected, "other operands");
}

int NodeReader::input(size_t i, ValueType type) const {
  require(has_input(i), "input " + std::to_string(i));
  require(value(node_.inputs[i]).type == type, type == ValueType::f32 ? "a float32 operand" : "an int32 operand");
  return node_.inputs[i];
}

int NodeReader::like_output(size_t i, int64_t width) const {
  const int number = input(i);
  const Value& found = value(number);
  require(found.symbol == output_value().symbol && found.width == width,
          found.name + " with the result's rows and width " + std::to_string(width));
  return number;
}

const Weight& NodeReader::matrix(size_t i) const {
  require(has_weight(i), "weight " + std::to_string(i));
  const Weight& weight = program_.weights()[static_cast<size_t>(node_.weights[i])];
  require(weight.rows > 0, "a matrix as weight " + weight.name);
  return weight;
}

const float* NodeReader::vector(size_t i, int64_t size) const {
  require(has_weight(i), "weight " + std::to_string(i));
  const Weight& weight = program_.weights()[static_cast<size_t>(node_.weights[i])];
  require(weight.rows == 0 && weight.cols == size, "weight " + weight.name + " of " + std::to_string(size) + " numbers");
  return static_cast<const float*>(weight.data);
}

const Attribute& NodeReader::attribute(const std::string& name) const {
  const auto found = node_.attributes.find(name);
  if (found == node_.attributes.end()) throw Refused(where(), "attribute " + name, "none");
  return found->second;
}

int64_t NodeReader::integer(const std::string& name) const {
  const int64_t* value = std::get_if<int64_t>(&attribute(name));
  if (value == nullptr) throw Refused(where(), "attribute " + name + " as a whole number", "another type");
  return *value;
}

float NodeReader::number(const std::string& name) const {
  const double* value = std::get_if<double>(&attribute(name));
  if (value == nullptr) throw Refused(where(), "attribute " + name + " as a float", "another type");
  return static_cast<float>(*value);
}

const std::string& NodeReader::text(const std::string& name) const {
  const std::string* value = std::get_if<std::string>(&attribute(name));
  if (value == nullptr) throw Refused(where(), "attribute " + name + " as text", "another type");
  return *value;
}

std::unique_ptr<Operation> make_operation(const Program& program, const Node& node) {
  const auto found = makers().find(node.op);
  if (found == makers().end()) throw Refused("building a plan", "an operation of the native engine", node.op);
  return found->second(NodeReader(program, node));
}

std::vector<CacheLayer> cache_layers(const Program& program) {
  std::map<int64_t, CacheLayer> found;
  int64_t count = 0;
  for (const Node& node : program.nodes()) {
    const NodeReader reader(program, node);
    if (node.op != "attention" || reader.text("mode") != "causal") continue;
    found[reader.integer("layer")] = {reader.integer("kv_heads"), reader.integer("head_dim"), reader.integer("value_dim")};
    ++count;
  }
  std::vector<CacheLayer> layers;
  for (const auto& [number, layer] : found) {
    if (number != static_cast<int64_t>(layers.size())) break;
    layers.push_back(layer);
  }
  if (static_cast<int64_t>(layers.size()) != count) {
    throw Refused("building a plan", "cache layers numbered from 0", "other numbers");
  }
  return layers;
}

}  // namespace ouzel
