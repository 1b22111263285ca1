#include "tensors.h"

#include <tvm/ffi/error.h>

#include <cstdlib>
#include <cstring>

namespace octet {

namespace ffi = tvm::ffi;

namespace {

struct AlignedAllocator {
  void AllocData(DLTensor* tensor) {
    size_t bytes = ffi::GetDataSize(*tensor);
    size_t whole = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    tensor->data = std::aligned_alloc(kAlignmentBytes, whole == 0 ? kAlignmentBytes : whole);
    if (tensor->data == nullptr) TVM_FFI_THROW(MemoryError) << "there is no room for a tensor of " << bytes << " bytes";
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

char* row(const ffi::Tensor& tensor, int64_t index) {
  int64_t rows = tensor.shape()[0];
  return static_cast<char*>(tensor.data_ptr()) + (rows == 0 ? 0 : size_bytes(tensor) / rows * index);
}

}  // namespace

ffi::Tensor make_tensor(const std::vector<int64_t>& shape, DLDataType dtype) {
  return ffi::Tensor::FromNDAlloc(AlignedAllocator(), ffi::ShapeView(shape.data(), shape.size()), dtype,
                                  DLDevice{kDLCPU, 0});
}

int64_t size_bytes(const ffi::Tensor& tensor) { return static_cast<int64_t>(ffi::GetDataSize(tensor)); }

std::vector<int64_t> with_rows(const ffi::Tensor& tensor, int64_t rows) {
  std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  shape.at(0) = rows;
  return shape;
}

void copy_rows(const ffi::Tensor& from, int64_t from_row, const ffi::Tensor& to, int64_t to_row, int64_t count) {
  int64_t rows = from.shape()[0];
  if (rows > 0) std::memcpy(row(to, to_row), row(from, from_row), size_bytes(from) / rows * count);
}

}  // namespace octet
