// What matrix products with weights as stored and with packed weights share.
#pragma once

#include <memory>

#include "runtime/operation.h"

namespace ouzel {

// Operands of a linear node, checked.
struct LinearForm {
  Weight weight;
  int x, y, residual = 0;
  bool has_residual;
  const float* bias = nullptr;
  Activation activation;

  explicit LinearForm(const NodeReader& node);
};

// Pieces of work for each thread, so that one that is held up does not leave the others waiting.
inline constexpr int64_t kPiecesPerThread = 4;

std::unique_ptr<Operation> make_packed_linear(const LinearForm& form);

}  // namespace ouzel
