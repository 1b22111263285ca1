#include "core_budget.h"

#include <algorithm>

#include "futex.h"

namespace octet {

CoreBudget::CoreBudget(int32_t cores, double window_s)
    : cores_(std::max(1, cores)), window_ns_(static_cast<int64_t>(1e9 * window_s)), free_(cores_) {}

int32_t CoreBudget::acquire(int32_t cores) {
  mutex_.lock();
  cores = std::min(std::max(1, cores), cores_);
  ++calls_;
  if (calls_ > 1 || concurrency_ > 1) {
    note_concurrency();
    cores = std::min(cores, std::max(1, cores_ / concurrency_));
  }
  if (cores <= free_ && first_ == nullptr) {
    free_ -= cores;
    mutex_.unlock();
    return cores;
  }
  Waiter waiter(cores);
  (first_ == nullptr ? first_ : last_->next) = &waiter;
  last_ = &waiter;
  ++waiting_;
  mutex_.unlock();
  while (waiter.is_granted.load(std::memory_order_acquire) == 0) futex_wait(waiter.is_granted, 0);
  return cores;
}

void CoreBudget::release(int32_t cores) {
  Lock lock(mutex_);
  --calls_;
  free_ += cores;
  // A call that asks for many cores is not overtaken by those that ask for few: it could starve.
  while (first_ != nullptr && first_->cores <= free_) {
    Waiter* first = first_;
    first_ = first->next;
    --waiting_;
    free_ -= first->cores;
    // From here on the waiter's stack may be gone. To wake an address at which nobody sleeps does no harm.
    first->is_granted.store(1, std::memory_order_release);
    futex_wake(first->is_granted);
  }
}

int32_t CoreBudget::free() {
  Lock lock(mutex_);
  return free_;
}

int32_t CoreBudget::waiting() {
  Lock lock(mutex_);
  return waiting_;
}

void CoreBudget::after_fork_in_child(int32_t held) {
  first_ = nullptr;
  waiting_ = 0;
  calls_ = held > 0;
  free_ = cores_ - held;
  mutex_.unlock();
}

void CoreBudget::note_concurrency() {
  int64_t now = now_ns();
  if (now > concurrency_until_ns_) concurrency_ = 1;
  if (calls_ >= concurrency_) {
    concurrency_ = calls_;
    concurrency_until_ns_ = now + window_ns_;
  }
}

}  // namespace octet
