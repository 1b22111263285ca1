#include "request/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace octet::plane {

namespace {

size_t rounded_size(size_t bytes) {
  return std::max((bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes, kAlignmentBytes);
}

}  // namespace

Tensor Pool::tensor(std::vector<int64_t> shape, size_t bytes) {
  size_t capacity = rounded_size(bytes);
  std::shared_ptr<char> memory(take(capacity),
                               [pool = shared_from_this(), capacity](char* its) { pool->give_back(its, capacity); });
  return {std::move(shape), bytes, std::move(memory)};
}

char* Pool::take(size_t capacity) {
  {
    std::lock_guard lock(mutex_);
    auto found = free_.find(capacity);
    if (found != free_.end() && !found->second.empty()) {
      char* memory = found->second.back();
      found->second.pop_back();
      free_bytes_ -= capacity;
      return memory;
    }
  }
  void* memory = std::aligned_alloc(kAlignmentBytes, capacity);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

void Pool::give_back(char* memory, size_t capacity) {
  std::lock_guard lock(mutex_);
  if (capacity > most_bytes_) {
    std::free(memory);
    return;
  }
  if (free_bytes_ + capacity > most_bytes_) clear();  // frees buffers of sizes that may never be used again
  free_[capacity].push_back(memory);
  free_bytes_ += capacity;
}

void Pool::clear() {
  for (auto& [capacity, pieces] : free_) {
    for (char* memory : pieces) std::free(memory);
  }
  free_.clear();
  free_bytes_ = 0;
}

}  // namespace octet::plane
