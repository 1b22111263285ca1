#include "grpc_calls.h"

#include <new>
#include <utility>

namespace octet {

h2::Buffer MessageMemory::take(size_t bytes) {
  if (taken_->fetch_add(bytes) + bytes > most_bytes_) {
    taken_->fetch_sub(bytes);
    return {};
  }
  h2::Buffer buffer;
  try {
    buffer = h2::Buffer::allocate(bytes);
  } catch (const std::bad_alloc&) {
    taken_->fetch_sub(bytes);
    return {};
  }
  uint8_t* data = buffer.data;
  std::shared_ptr<void> counted(data, [taken = taken_, bytes, owner = std::move(buffer.owner)](void*) {
    taken->fetch_sub(bytes);
  });
  return {data, bytes, std::move(counted)};
}

}  // namespace octet
