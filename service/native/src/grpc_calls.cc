#include "grpc_calls.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace octet {

CallEvents::CallEvents() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

CallEvents::~CallEvents() { ::close(descriptor_); }

void CallEvents::put(CallEvent event) {
  bool was_empty;
  {
    std::lock_guard lock(mutex_);
    was_empty = events_.empty();
    events_.push_back(std::move(event));
  }
  if (was_empty) eventfd_write(descriptor_, 1);
}

std::vector<CallEvent> CallEvents::take() {
  eventfd_t ignored;
  eventfd_read(descriptor_, &ignored);  // first: who puts something in afterwards wakes Python again
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

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
