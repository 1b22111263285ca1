#include "queue/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace octet::plane {

namespace {

size_t room_for(size_t bytes) {
  return std::max((bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes, kAlignmentBytes);
}

}  // namespace

Tensor Pool::tensor(std::vector<int64_t> shape, size_t bytes) {
  size_t room = room_for(bytes);
  std::shared_ptr<char> memory(take(room), [pool = shared_from_this(), room](char* its) { pool->give_back(its, room); });
  return {std::move(shape), bytes, std::move(memory)};
}

char* Pool::take(size_t room) {
  {
    std::lock_guard lock(mutex_);
    auto found = free_.find(room);
    if (found != free_.end() && !found->second.empty()) {
      char* memory = found->second.back();
      found->second.pop_back();
      free_bytes_ -= room;
      return memory;
    }
  }
  void* memory = std::aligned_alloc(kAlignmentBytes, room);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

void Pool::give_back(char* memory, size_t room) {
  std::lock_guard lock(mutex_);
  if (room > most_bytes_) {
    std::free(memory);
    return;
  }
  if (free_bytes_ + room > most_bytes_) clear();  // frees buffers of sizes that may never be used again
  free_[room].push_back(memory);
  free_bytes_ += room;
}

void Pool::clear() {
  for (auto& [room, pieces] : free_) {
    for (char* memory : pieces) std::free(memory);
  }
  free_.clear();
  free_bytes_ = 0;
}

}  // namespace octet::plane
