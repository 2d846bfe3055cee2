// The table of one ISA: every kernel, compiled once more in its namespace with its flags. Included by the ISA's own file
// alone, after that defined OUZEL_ISA and included its f32x16 header.
#pragma once

#include "kernels/attention/attention_impl.h"
#include "kernels/attention/store_impl.h"
#include "kernels/elementwise/elementwise_impl.h"
#include "kernels/linear/linear_impl.h"
#include "kernels/norm/norm_impl.h"
#include "kernels/peak/peak_impl.h"
#include "kernels/quantised/linear_packed_impl.h"
#include "kernels/rotary/rotary_impl.h"

#define OUZEL_TEXT_(x) #x
#define OUZEL_TEXT(x) OUZEL_TEXT_(x)

namespace ouzel::OUZEL_ISA {

extern const Kernels table;
constinit const Kernels table = {
    .name = OUZEL_TEXT(OUZEL_ISA),
    .linear = linear,
    .linear_scratch = linear_scratch,
    .linear_columns = linear_columns,
    .quantise = quantise,
    .quantise_unit = quantise_unit,
    .linear_packed = linear_packed_weights,
    .linear_packed_columns = linear_packed_columns,
    .decode_packed = decode_packed,
    .attention = attention,
    .attention_scratch = attention_scratch,
    .attention_rows = attention_rows,
    .store = store_keys_values,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .rotary = rotary,
    .silu_mul = silu_mul,
    .activate = activate,
    .add = add_rows,
    .mul = mul_rows,
    .decode_row = decode_row,
    .axpy_row = axpy_row,
    .all_finite = all_finite,
    .fma_loop = fma_loop,
    .dot_loop = dot_loop,
    .read_loop = read_loop,
};

}  // namespace ouzel::OUZEL_ISA
