// Matrix products with packed weights: the input is quantised once for all products that read it, then cut into tiles of
// rows and columns. A tile's result does not depend on the cut.
#include <algorithm>

#include "runtime/ops/linear.h"

namespace ouzel {
namespace {

// Up to so many rows the weights' way from memory counts, not the arithmetic: they are cut into stretches of this size,
// all rows together.
constexpr int64_t kFewRows = 16;
constexpr int64_t kStretchBytes = int64_t{128} << 10;

constexpr int64_t kLeastTileRows = 48;

class LinearPacked : public Operation {
 public:
  explicit LinearPacked(const LinearForm& form) : form_(form) {}

  void run(Frame& frame) const override {
    const int64_t rows = frame.rows(form_.y);
    if (rows == 0) return;
    const float* x = frame.quantised(form_.x, form_.weight.cols);
    const Cut cut = rows <= kFewRows ? cut_few(frame, rows) : cut_many(frame, rows);
    const int64_t column_tiles = divide_up(form_.weight.rows, cut.columns);
    frame.for_each(column_tiles * divide_up(rows, cut.rows), [&](int64_t item, int) {
      const int64_t first = item / column_tiles * cut.rows, n0 = item % column_tiles * cut.columns;
      LinearPackedArgs args = operands(frame, x, first, std::min(cut.rows, rows - first));
      args.n0 = n0;
      args.n1 = std::min(n0 + cut.columns, form_.weight.rows);
      frame.kernels().linear_packed(args);
    });
  }

 private:
  // Sizes of a tile: columns in whole pairs of panels, rows in whole tiles of quantised rows.
  struct Cut {
    int64_t rows, columns;
  };

  // `tiles` tiles of columns as even as panels allow.
  int64_t even_columns(int64_t tiles) const {
    const int64_t columns = divide_up(form_.weight.rows, std::max<int64_t>(1, tiles));
    return round_up(columns, 2 * kPanelRows);
  }

  Cut cut_few(const Frame& frame, int64_t rows) const {
    const int64_t bytes = packed_bytes(form_.weight.type, form_.weight.rows, form_.weight.cols);
    const int64_t wanted = std::max(divide_up(bytes, kStretchBytes), kPiecesPerThread * frame.threads());
    return {rows, even_columns(wanted)};
  }

  Cut cut_many(const Frame& frame, int64_t rows) const {
    const int64_t fit = frame.kernels().linear_packed_columns(form_.weight.cols, form_.weight.type);
    const int64_t columns = even_columns(divide_up(form_.weight.rows, fit));
    const int64_t column_tiles = divide_up(form_.weight.rows, columns);
    const int64_t wanted = divide_up(kPiecesPerThread * frame.threads(), column_tiles);
    const int64_t blocks = std::max<int64_t>(1, std::min(wanted, rows / kLeastTileRows));
    return {round_up(divide_up(rows, blocks), frame.kernels().quantise_unit(rows)), columns};
  }

  LinearPackedArgs operands(const Frame& frame, const float* x, int64_t first, int64_t count) const {
    const int64_t n = form_.weight.rows, k = form_.weight.cols;
    LinearPackedArgs args{};
    args.x = x + first * divide_up(k, kGroupColumns) * kQuantFloats;
    args.rows = count;
    args.unit = frame.kernels().quantise_unit(frame.rows(form_.y));
    args.w = form_.weight.data;
    args.type = form_.weight.type;
    args.k = k;
    args.bias = form_.bias;
    args.y_stride = n;
    args.y = frame.out(form_.y) + first * n;
    args.residual_stride = n;
    args.residual = form_.has_residual ? frame.in(form_.residual) + first * n : nullptr;
    args.act = form_.activation;
    return args;
  }

  LinearForm form_;
};

}  // namespace

std::unique_ptr<Operation> make_packed_linear(const LinearForm& form) { return std::make_unique<LinearPacked>(form); }

}  // namespace ouzel
