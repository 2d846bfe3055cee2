// Operations that move rows by an index that the caller gives. Every index is looked at before the step runs.
#include <cstring>
#include <string>

#include "runtime/error.h"
#include "runtime/operation.h"

namespace ouzel {
namespace {

// Throws Refused unless all `count` numbers are in [0, limit).
void check_index(const std::string& where, const std::string& name, const int32_t* index, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] >= 0 && index[i] < limit) continue;
    throw Refused(where, name + " in 0 to " + std::to_string(limit - 1), std::to_string(index[i]));
  }
}

// What the operations share: an index of one column, and where to complain.
class Indexed : public Operation {
 public:
  Indexed(const NodeReader& node, size_t index_input)
      : index_(node.input(index_input, ValueType::i32)),
        y_(node.output()),
        width_(node.output_value().width),
        where_(node.where()),
        index_name_(node.value(index_).name) {}

 protected:
  void check_limit(const Frame& frame, int64_t columns, int64_t limit) const {
    check_index(where_, index_name_, frame.index(index_), frame.rows(index_) * columns, limit);
  }
  void require_one_column(const NodeReader& node) const {
    node.require(node.value(index_).width == 1, index_name_ + " with one column");
  }

  int index_, y_;
  int64_t width_;
  std::string where_, index_name_;
};

class Embed : public Indexed {
 public:
  explicit Embed(const NodeReader& node) : Indexed(node, 0), table_(node.matrix(0)) {
    require_one_column(node);
    node.require(table_.cols == width_ && node.value(index_).symbol == node.output_value().symbol, "a table of its width");
  }

  void check(const Frame& frame) const override { check_limit(frame, 1, table_.rows); }

  void run(Frame& frame) const override {
    frame.for_rows(frame.rows(y_), width_, [&](int64_t first, int64_t count) {
      for (int64_t row = first; row < first + count; ++row) {
        decode(frame.kernels(), frame.index(index_)[row], frame.out(y_) + row * width_);
      }
    });
  }

 private:
  void decode(const Kernels& kernels, int64_t row, float* to) const {
    if (is_packed(table_.type)) return kernels.decode_packed(table_.data, table_.type, width_, row, to);
    const auto* bytes = static_cast<const uint8_t*>(table_.data);
    kernels.decode_row(bytes + row * width_ * table_.element_bytes(), table_.type, width_, to);
  }

  Weight table_;
};

class BlendRows : public Indexed {
 public:
  explicit BlendRows(const NodeReader& node)
      : Indexed(node, 0), x_(node.like_output(1, node.value(index_).width)), taps_(node.value(index_).width),
        table_(node.matrix(0)) {
    node.require(!is_packed(table_.type), "a table that is not packed");
    node.require(table_.cols == width_ && node.value(index_).symbol == node.output_value().symbol, "a table of its width");
  }

  void check(const Frame& frame) const override { check_limit(frame, taps_, table_.rows); }

  void run(Frame& frame) const override {
    frame.for_rows(frame.rows(y_), taps_ * width_, [&](int64_t first, int64_t count) {
      for (int64_t row = first; row < first + count; ++row) blend(frame, row);
    });
  }

 private:
  // Taps in ascending order, from +0.
  void blend(const Frame& frame, int64_t row) const {
    const auto* bytes = static_cast<const uint8_t*>(table_.data);
    float* y = frame.out(y_) + row * width_;
    std::memset(y, 0, static_cast<size_t>(width_) * sizeof(float));
    for (int64_t tap = row * taps_; tap < (row + 1) * taps_; ++tap) {
      const uint8_t* source = bytes + frame.index(index_)[tap] * width_ * table_.element_bytes();
      frame.kernels().axpy_row(frame.in(x_)[tap], source, table_.type, width_, y);
    }
  }

  int x_;
  int64_t taps_;
  Weight table_;
};

class TakeRows : public Indexed {
 public:
  explicit TakeRows(const NodeReader& node) : Indexed(node, 1), x_(node.input(0)) {
    require_one_column(node);
    node.require(node.value(x_).width == width_ && node.value(index_).symbol == node.output_value().symbol,
                 "a result with the rows of the index and the width of x");
  }

  void check(const Frame& frame) const override { check_limit(frame, 1, frame.rows(x_)); }

  void run(Frame& frame) const override {
    frame.for_rows(frame.rows(y_), width_, [&](int64_t first, int64_t count) {
      for (int64_t row = first; row < first + count; ++row) {
        const float* source = frame.in(x_) + frame.index(index_)[row] * width_;
        std::memcpy(frame.out(y_) + row * width_, source, static_cast<size_t>(width_) * sizeof(float));
      }
    });
  }

 private:
  int x_;
};

// put_rows and add_rows: y is x but for the rows that the index names.
class PutRows : public Indexed {
 public:
  PutRows(const NodeReader& node, bool add)
      : Indexed(node, 2), x_(node.like_output(0)), values_(node.input(1)), add_(add) {
    require_one_column(node);
    const Value &values = node.value(values_), &index = node.value(index_);
    node.require(values.width == width_ && values.symbol == index.symbol, "values of the result's width, one for each index");
  }

  void check(const Frame& frame) const override { check_limit(frame, 1, frame.rows(y_)); }

  void run(Frame& frame) const override {
    const float* x = frame.in(x_);
    float* y = frame.out(y_);
    if (x != y) {
      frame.for_rows(frame.rows(y_), width_, [&](int64_t first, int64_t count) {
        std::memcpy(y + first * width_, x + first * width_, static_cast<size_t>(count * width_) * sizeof(float));
      });
    }
    // One thread, in order: should a row be named twice, the result is still the same every time.
    for (int64_t i = 0; i < frame.rows(index_); ++i) put(frame, i, y + frame.index(index_)[i] * width_);
  }

 private:
  void put(const Frame& frame, int64_t i, float* row) const {
    const float* value = frame.in(values_) + i * width_;
    if (add_) {
      frame.kernels().add(row, value, width_, row);
    } else {
      std::memcpy(row, value, static_cast<size_t>(width_) * sizeof(float));
    }
  }

  int x_, values_;
  bool add_;
};

}  // namespace

std::unique_ptr<Operation> make_embed(const NodeReader& node) { return std::make_unique<Embed>(node); }

std::unique_ptr<Operation> make_blend_rows(const NodeReader& node) { return std::make_unique<BlendRows>(node); }

std::unique_ptr<Operation> make_take_rows(const NodeReader& node) { return std::make_unique<TakeRows>(node); }

std::unique_ptr<Operation> make_put_rows(const NodeReader& node) { return std::make_unique<PutRows>(node, false); }

std::unique_ptr<Operation> make_add_rows(const NodeReader& node) { return std::make_unique<PutRows>(node, true); }

}  // namespace ouzel
