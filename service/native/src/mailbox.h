// Finished jobs on their way from the threads that ran them to an event loop, which is woken by a descriptor.
#pragma once

#include <mutex>
#include <vector>

#include "job.h"

namespace octet {

class Mailbox {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // An eventfd: readable while something may be inside.
  int descriptor() const { return descriptor_; }

  // From any thread. Jobs of one call are put in together.
  void put(const std::vector<Job>& jobs);

  // All that is inside; the descriptor is no longer readable. For the event loop.
  std::vector<Job> take();

 private:
  int descriptor_;
  std::mutex mutex_;
  std::vector<Job> jobs_;
};

}  // namespace octet
