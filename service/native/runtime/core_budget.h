// The core budget: a fair semaphore that bounds how many threads compute at a time in this process.
#pragma once

#include <atomic>
#include <cstdint>

#include "mutex.h"

namespace octet {

// A call acquires as many cores as it has threads, and waits first come, first served until they are free. A call that
// is alone may acquire them all; concurrent calls, and those that follow soon, get an equal share each.
class CoreBudget {
 public:
  // Calls that follow each other within `window_s` count as concurrent.
  CoreBudget(int32_t cores, double window_s);

  // Waits for `cores` cores, or fewer where other calls want some too. Returns how many to `release`.
  int32_t acquire(int32_t cores);
  void release(int32_t cores);
  int32_t cores() const { return cores_; }
  int32_t free();     // cores
  int32_t waiting();  // calls

  // Around a fork. In the child only the calling thread lives on, which holds `held` cores.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child(int32_t held);

 private:
  struct Waiter {
    explicit Waiter(int32_t asked) : cores(asked) {}
    const int32_t cores;
    std::atomic<uint32_t> is_granted{0};
    Waiter* next = nullptr;
  };

  void note_concurrency();

  const int32_t cores_;
  const int64_t window_ns_;
  Mutex mutex_;
  int32_t free_;
  int32_t calls_ = 0;        // that compute or wait
  int32_t concurrency_ = 1;  // the most calls at a time lately
  int64_t concurrency_until_ns_ = 0;
  // A queue of those who wait, each on its thread's stack.
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  int32_t waiting_ = 0;
};

}  // namespace octet
