// Tensors in memory of their own, and what of them is what.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <vector>

namespace octet {

inline constexpr int64_t kAlignmentBytes = 64;  // as service/core/buffers.py has it

// Uninitialized, row-major, on the CPU, aligned as kernels want it.
tvm::ffi::Tensor make_tensor(const std::vector<int64_t>& shape, DLDataType dtype);

int64_t size_bytes(const tvm::ffi::Tensor& tensor);

// The shape with another first dimension.
std::vector<int64_t> with_rows(const tvm::ffi::Tensor& tensor, int64_t rows);

// Copies `count` rows. Both tensors have rows of the same size, and so many of them.
void copy_rows(const tvm::ffi::Tensor& from, int64_t from_row, const tvm::ffi::Tensor& to, int64_t to_row,
               int64_t count);

}  // namespace octet
