// Operations that work on every row alone: they are handed out in pieces of rows.
#include <cstring>
#include <functional>
#include <utility>

#include "runtime/error.h"
#include "runtime/operation.h"

namespace ouzel {
namespace {

// Calls a function for pieces of the output's rows.
class RowOperation : public Operation {
 public:
  using Body = std::function<void(const Frame&, int64_t first, int64_t count)>;

  RowOperation(const NodeReader& node, Body body)
      : output_(node.output()), width_(node.output_value().width), body_(std::move(body)) {}

  void run(Frame& frame) const override {
    frame.for_rows(frame.rows(output_), width_, [&](int64_t first, int64_t count) { body_(frame, first, count); });
  }

 private:
  int output_;
  int64_t width_;
  Body body_;
};

// An elementwise kernel of two operands: y = f(a, b).
std::unique_ptr<Operation> make_pair(const NodeReader& node, void (*Kernels::*kernel)(const float*, const float*, int64_t,
                                                                                      float*)) {
  const int a = node.like_output(0), b = node.like_output(1), y = node.output();
  const int64_t width = node.output_value().width;
  return std::make_unique<RowOperation>(node, [=](const Frame& f, int64_t first, int64_t count) {
    const int64_t at = first * width;
    (f.kernels().*kernel)(f.in(a) + at, f.in(b) + at, count * width, f.out(y) + at);
  });
}

int64_t head_width(const NodeReader& node, int64_t heads) {
  node.require(heads > 0 && node.output_value().width % heads == 0, "a number of heads that divides the width");
  return node.output_value().width / heads;
}

class FoldRows : public Operation {
 public:
  explicit FoldRows(const NodeReader& node)
      : x_(node.input(0)), y_(node.output()), x_width_(node.value(x_).width), y_width_(node.output_value().width) {
    node.require(node.integer("count") * x_width_ == y_width_, "a result as wide as the folded rows");
    where_ = node.where();
  }

  void check(const Frame& frame) const override;

  // Rows are dense, so folding them is a copy.
  void run(Frame& frame) const override {
    frame.for_rows(frame.rows(y_), y_width_, [&](int64_t first, int64_t count) {
      const auto bytes = static_cast<size_t>(count * y_width_) * sizeof(float);
      std::memcpy(frame.out(y_) + first * y_width_, frame.in(x_) + first * y_width_, bytes);
    });
  }

 private:
  int x_, y_;
  int64_t x_width_, y_width_;
  std::string where_;
};

void FoldRows::check(const Frame& frame) const {
  if (frame.rows(x_) * x_width_ != frame.rows(y_) * y_width_) {
    throw Refused(where_, "rows that fold without a rest", std::to_string(frame.rows(x_)));
  }
}

}  // namespace

std::unique_ptr<Operation> make_rms_norm(const NodeReader& node) {
  const int x = node.like_output(0), y = node.output();
  const int64_t width = node.output_value().width, heads = node.integer("heads"), head = head_width(node, heads);
  const float* weight = node.vector(0, head);
  const float eps = node.number("eps");
  return std::make_unique<RowOperation>(node, [=](const Frame& f, int64_t first, int64_t count) {
    const int64_t at = first * width;
    f.kernels().rms_norm(f.in(x) + at, width, weight, eps, count, heads, head, f.out(y) + at, width);
  });
}

std::unique_ptr<Operation> make_layer_norm(const NodeReader& node) {
  const int x = node.like_output(0), y = node.output();
  const int64_t width = node.output_value().width;
  const float *weight = node.vector(0, width), *bias = node.vector(1, width);
  const float eps = node.number("eps");
  return std::make_unique<RowOperation>(node, [=](const Frame& f, int64_t first, int64_t count) {
    const int64_t at = first * width;
    f.kernels().layer_norm(f.in(x) + at, width, weight, bias, eps, count, width, f.out(y) + at, width);
  });
}

std::unique_ptr<Operation> make_rotary(const NodeReader& node) {
  const int x = node.like_output(0), y = node.output();
  const int64_t width = node.output_value().width, heads = node.integer("heads"), head = head_width(node, heads);
  const int64_t half = node.value(node.input(1)).width;
  node.require(2 * half <= head, "cos no wider than half a head");
  const int cosine = node.like_output(1, half), sine = node.like_output(2, half);
  const bool pairs = node.text("style") == "pairs";
  node.require(pairs || node.text("style") == "halves", "style halves or pairs");
  return std::make_unique<RowOperation>(node, [=](const Frame& f, int64_t first, int64_t count) {
    const int64_t at = first * width, turn = first * half;
    f.kernels().rotary(f.in(x) + at, width, f.in(cosine) + turn, f.in(sine) + turn, half, count, heads, head, pairs,
                       f.out(y) + at, width);
  });
}

std::unique_ptr<Operation> make_gelu(const NodeReader& node) {
  const int x = node.like_output(0), y = node.output();
  const int64_t width = node.output_value().width;
  const std::string& form = node.text("form");
  node.require(form == "tanh" || form == "erf", "form tanh or erf");
  const Activation activation = form == "tanh" ? Activation::gelu_tanh : Activation::gelu_erf;
  return std::make_unique<RowOperation>(node, [=](const Frame& f, int64_t first, int64_t count) {
    const int64_t at = first * width;
    f.kernels().activate(f.in(x) + at, activation, count * width, f.out(y) + at);
  });
}

std::unique_ptr<Operation> make_silu_mul(const NodeReader& node) { return make_pair(node, &Kernels::silu_mul); }

std::unique_ptr<Operation> make_add(const NodeReader& node) { return make_pair(node, &Kernels::add); }

std::unique_ptr<Operation> make_mul(const NodeReader& node) { return make_pair(node, &Kernels::mul); }

std::unique_ptr<Operation> make_fold_rows(const NodeReader& node) { return std::make_unique<FoldRows>(node); }

}  // namespace ouzel
