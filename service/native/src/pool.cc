#include "pool.h"

#include <cstdlib>
#include <new>

#include "tensors.h"

namespace octet {

namespace {

size_t room_for(const DLTensor& tensor) {
  size_t bytes = ffi::GetDataSize(tensor), unit = kAlignmentBytes;
  return bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
}

}  // namespace

struct Pool::Allocator {
  std::shared_ptr<Pool> pool;
  void AllocData(DLTensor* tensor) { tensor->data = pool->take(room_for(*tensor)); }
  void FreeData(DLTensor* tensor) { pool->give_back(tensor->data, room_for(*tensor)); }
};

Pool::~Pool() { clear(); }

ffi::Tensor Pool::tensor(const std::vector<int64_t>& shape, DLDataType dtype) {
  return ffi::Tensor::FromNDAlloc(Allocator{shared_from_this()}, ffi::ShapeView(shape.data(), shape.size()), dtype,
                                  DLDevice{kDLCPU, 0});
}

void* Pool::take(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    auto found = free_.find(bytes);
    if (found != free_.end() && !found->second.empty()) {
      void* memory = found->second.back();
      found->second.pop_back();
      free_bytes_ -= bytes;
      return memory;
    }
  }
  void* memory = std::aligned_alloc(kAlignmentBytes, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Pool::give_back(void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > most_bytes_) {
    std::free(memory);
    return;
  }
  if (free_bytes_ + bytes > most_bytes_) clear();  // of sizes that were asked for once
  free_[bytes].push_back(memory);
  free_bytes_ += bytes;
}

void Pool::clear() {
  for (auto& [bytes, pieces] : free_) {
    for (void* memory : pieces) std::free(memory);
  }
  free_.clear();
  free_bytes_ = 0;
}

}  // namespace octet
