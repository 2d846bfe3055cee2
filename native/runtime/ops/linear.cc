// Matrix products, cut into tiles of rows and columns. A tile's result does not depend on the cut.
#include <algorithm>

#include "runtime/operation.h"

namespace ouzel {
namespace {

// Input rows of one tile: this many bytes stay in a shared cache while the columns pass by, so that the input is read
// from memory once.
constexpr int64_t kTileBytes = int64_t{4} << 20;
constexpr int64_t kLeastTileRows = 64;

// Pieces of work for each thread, so that one that is held up does not leave the others waiting.
constexpr int64_t kPiecesPerThread = 4;

Activation activation(const NodeReader& node) {
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
  explicit Linear(const NodeReader& node) : weight_(node.matrix(0)), x_(node.input(0)), y_(node.output()) {
    node.require(node.output_value().width == weight_.rows, "a result as wide as the weight has rows");
    node.like_output(0, weight_.cols);
    if (node.has_weight(1)) bias_ = node.vector(1, weight_.rows);
    has_residual_ = node.has_input(1);
    residual_ = has_residual_ ? node.like_output(1) : 0;
    activation_ = activation(node);
  }

  void run(Frame& frame) const override {
    const int64_t rows = frame.rows(y_), n = weight_.rows, k = weight_.cols;
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
    const int64_t fitting = kTileBytes / (weight_.cols * static_cast<int64_t>(sizeof(float)));
    int64_t blocks = divide_up(rows, std::max(kLeastTileRows, fitting));
    const int64_t wanted = divide_up(kPiecesPerThread * threads, column_tiles);
    blocks = std::max(blocks, std::min(wanted, rows / kLeastTileRows));
    return round_up(std::max<int64_t>(1, divide_up(rows, std::max<int64_t>(1, blocks))), 16);
  }

  LinearArgs operands(const Frame& frame, int64_t first, int64_t count) const {
    LinearArgs args{};
    args.x_stride = weight_.cols;
    args.x = frame.in(x_) + first * args.x_stride;
    args.rows = count;
    args.w = weight_.data;
    args.type = weight_.type;
    args.k = weight_.cols;
    args.bias = bias_;
    args.y_stride = weight_.rows;
    args.y = frame.out(y_) + first * args.y_stride;
    args.residual_stride = weight_.rows;
    args.residual = has_residual_ ? frame.in(residual_) + first * args.residual_stride : nullptr;
    args.act = activation_;
    return args;
  }

  Weight weight_;
  int x_, y_, residual_ = 0;
  bool has_residual_ = false;
  const float* bias_ = nullptr;
  Activation activation_ = Activation::none;
};

}  // namespace

std::unique_ptr<Operation> make_linear(const NodeReader& node) { return std::make_unique<Linear>(node); }

}  // namespace ouzel
