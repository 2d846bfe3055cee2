// Matrix products, cut into tiles of rows and columns. A tile's result does not depend on the cut.
#include <algorithm>

#include "runtime/ops/linear.h"

namespace ouzel {
namespace {

// Input rows of one tile: this many bytes stay in a shared cache while the columns pass by, so that the input is read
// from memory once.
constexpr int64_t kTileBytes = int64_t{4} << 20;
constexpr int64_t kLeastTileRows = 64;

Activation read_activation(const NodeReader& node) {
  const std::string& name = node.text("activation");
  if (name == "none") return Activation::none;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  if (name == "gelu_erf") return Activation::gelu_erf;
  node.require(name == "silu", "activation none, gelu_tanh, gelu_erf or silu");
  return Activation::silu;
}

// Columns of a piece for a single row, where long streams of weights read memory faster.
constexpr int64_t kWidePiece = 512;

class Linear : public Operation {
 public:
  explicit Linear(const LinearForm& form) : form_(form) {}

  void run(Frame& frame) const override {
    const int64_t rows = frame.rows(form_.y), n = form_.weight.rows, k = form_.weight.cols;
    int64_t columns = frame.kernels().linear_columns(k);
    if (rows == 1) columns = std::max(columns, std::min(kWidePiece, divide_up(n, 2 * int64_t{frame.threads()})));
    const int64_t column_tiles = divide_up(n, columns);
    const int64_t tile_rows = rows_of_tile(rows, column_tiles, frame.threads());
    frame.reserve_scratch(frame.kernels().linear_scratch(k));
    // All columns of one block of rows, then the next block.
    frame.for_each(column_tiles * divide_up(rows, tile_rows), [&](int64_t item, int worker) {
      const int64_t first = item / column_tiles * tile_rows, n0 = item % column_tiles * columns;
      LinearArgs args = operands(frame, first, std::min(tile_rows, rows - first));
      args.n0 = n0;
      args.n1 = std::min(n0 + columns, n);
      args.scratch = frame.scratch(worker);
      frame.kernels().linear(args);
    });
  }

 private:
  int64_t rows_of_tile(int64_t rows, int64_t column_tiles, int threads) const {
    const int64_t fitting = kTileBytes / (form_.weight.cols * static_cast<int64_t>(sizeof(float)));
    int64_t blocks = divide_up(rows, std::max(kLeastTileRows, fitting));
    const int64_t wanted = divide_up(kPiecesPerThread * threads, column_tiles);
    blocks = std::max(blocks, std::min(wanted, rows / kLeastTileRows));
    return round_up(std::max<int64_t>(1, divide_up(rows, std::max<int64_t>(1, blocks))), 16);
  }

  LinearArgs operands(const Frame& frame, int64_t first, int64_t count) const {
    LinearArgs args{};
    args.x_stride = form_.weight.cols;
    args.x = frame.in(form_.x) + first * args.x_stride;
    args.rows = count;
    args.w = form_.weight.data;
    args.type = form_.weight.type;
    args.k = form_.weight.cols;
    args.bias = form_.bias;
    args.y_stride = form_.weight.rows;
    args.y = frame.out(form_.y) + first * args.y_stride;
    args.residual_stride = form_.weight.rows;
    args.residual = form_.has_residual ? frame.in(form_.residual) + first * args.residual_stride : nullptr;
    args.act = form_.activation;
    return args;
  }

  LinearForm form_;
};

}  // namespace

LinearForm::LinearForm(const NodeReader& node)
    : weight(node.matrix(0)),
      x(node.input(0)),
      y(node.output()),
      has_residual(node.has_input(1)),
      activation(read_activation(node)) {
  node.require(node.output_value().width == weight.rows, "a result as wide as the weight has rows");
  node.like_output(0, weight.cols);
  if (node.has_weight(1)) bias = node.vector(1, weight.rows);
  if (has_residual) residual = node.like_output(1);
}

std::unique_ptr<Operation> make_linear(const NodeReader& node) {
  const LinearForm form(node);
  if (is_packed(form.weight.type)) return make_packed_linear(form);
  return std::make_unique<Linear>(form);
}

}  // namespace ouzel
