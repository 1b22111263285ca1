#include "mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace octet {

Mailbox::Mailbox() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Mailbox::~Mailbox() { ::close(descriptor_); }

void Mailbox::put(const std::vector<Job>& jobs) {
  bool was_empty;
  {
    std::lock_guard lock(mutex_);
    was_empty = jobs_.empty();
    jobs_.insert(jobs_.end(), jobs.begin(), jobs.end());
  }
  if (was_empty) eventfd_write(descriptor_, 1);
}

std::vector<Job> Mailbox::take() {
  eventfd_t ignored;
  eventfd_read(descriptor_, &ignored);  // first: who puts something in afterwards wakes us again
  std::lock_guard lock(mutex_);
  return std::exchange(jobs_, {});
}

}  // namespace octet
