#include "core_budget.h"

#include <algorithm>

namespace octet {

namespace {

constexpr double kMemory = 0.75;  // The weight of the past in the moving average of a flow's cost.
// A call that costs less than this fraction of the running calls' average does not wait for them.
constexpr double kFraction = 0.25;
constexpr int32_t kCoresOverdrawn = 8;  // for each group of this many cores, one call may exceed the budget

}  // namespace

CoreBudget::CoreBudget(int32_t cores, double window_s, int64_t (*clock)())
    : cores_(std::max(1, cores)), window_ns_(static_cast<int64_t>(1e9 * window_s)), clock_(clock), free_(cores_) {}

Turn CoreBudget::acquire(int32_t cores, Flow* flow) {
  Waiter waiter;
  mutex_.lock();
  waiter.turn.cores = std::min(std::max(1, cores), cores_);
  waiter.turn.flow = flow == nullptr ? &others_ : flow;
  enter(waiter);
  waiter.turn.is_minor = is_minor(waiter.turn);
  if (waiter.turn.is_minor) {
    waiter.turn.cores = 1;
  } else {
    ++calls_;
    waiter.turn.cores = share(waiter.turn.cores);
  }
  if (first_ == nullptr && fits(waiter)) {
    grant(waiter, false);
    mutex_.unlock();
    return waiter.turn;
  }
  wait(waiter);
  grant_next();
  mutex_.unlock();
  while (waiter.is_granted.load(std::memory_order_acquire) == 0) futex_wait(waiter.is_granted, 0);
  return waiter.turn;
}

void CoreBudget::release(const Turn& turn) {
  Lock lock(mutex_);
  double cost_s = 1e-9 * static_cast<double>(clock_() - turn.begun_ns) * turn.cores;
  Flow& flow = *turn.flow;
  if (flow.budget == this) flow.finish += cost_s - turn.expected_s;
  flow.cost_s = flow.cost_s < 0 ? cost_s : kMemory * flow.cost_s + (1 - kMemory) * cost_s;
  if (!turn.is_minor) --calls_;
  if (turn.is_overdrawn) {
    --overdrawn_;
  } else {
    free_ += turn.cores;
    running_s_ = --running_ == 0 ? 0 : running_s_ - turn.expected_s;
  }
  grant_next();
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
  waiting_ = overdrawn_ = 0;
  calls_ = running_ = held > 0;
  running_s_ = 0;
  free_ = cores_ - held;
  mutex_.unlock();
}

// Returns an equal number of cores for each call that was recently concurrent.
int32_t CoreBudget::share(int32_t cores) {
  if (calls_ == 1 && concurrency_ == 1) return cores;
  int64_t now = clock_();
  if (now > concurrency_until_ns_) concurrency_ = 1;
  if (calls_ >= concurrency_) {
    concurrency_ = calls_;
    concurrency_until_ns_ = now + window_ns_;
  }
  return std::min(cores, std::max(1, cores_ / concurrency_));
}

// Determines the time in virtual time at which the call begins.
void CoreBudget::enter(Waiter& waiter) {
  Flow& flow = *waiter.turn.flow;
  if (flow.budget != this) {
    flow.budget = this;
    flow.finish = start_;
  }
  waiter.turn.expected_s = std::max(0.0, flow.cost_s);
  waiter.start = std::max(start_, flow.finish);
  flow.finish = waiter.start + waiter.turn.expected_s;
}

bool CoreBudget::fits(const Waiter& waiter) const { return waiter.turn.cores <= free_; }

// Returns true if the call costs little compared with the running calls.
bool CoreBudget::is_minor(const Turn& turn) const {
  return running_ > 0 && turn.flow->cost_s >= 0 && turn.expected_s * running_ <= kFraction * running_s_;
}

// Returns true if the call may exceed the budget. The call's flow must not be ahead of the running flows.
bool CoreBudget::may_overdraw(const Waiter& waiter) const {
  return is_minor(waiter.turn) && waiter.start < finish_ && overdrawn_ <= (cores_ - 1) / kCoresOverdrawn;
}

void CoreBudget::grant(Waiter& waiter, bool is_overdrawn) {
  Turn& turn = waiter.turn;
  turn.is_overdrawn = is_overdrawn;
  turn.begun_ns = clock_();
  if (is_overdrawn) {
    turn.cores = 1;
    ++overdrawn_;
    return;
  }
  free_ -= turn.cores;
  ++running_;
  running_s_ += turn.expected_s;
  start_ = std::max(start_, waiter.start);
  finish_ = std::max(finish_, waiter.start + turn.expected_s);
}

void CoreBudget::wait(Waiter& waiter) {
  Waiter** link = &first_;
  while (*link != nullptr && (*link)->start <= waiter.start) link = &(*link)->next;
  waiter.next = *link;
  *link = &waiter;
  ++waiting_;
}

// A call that waits for many cores is only overtaken by calls that exceed the budget. Otherwise it could wait for ever.
void CoreBudget::grant_next() {
  Waiter** link = &first_;
  while (Waiter* waiter = *link) {
    bool has_cores = waiter == first_ && fits(*waiter);
    if (!has_cores && !may_overdraw(*waiter)) {
      link = &waiter->next;
      continue;
    }
    *link = waiter->next;
    --waiting_;
    grant(*waiter, !has_cores);
    // After this store, the waiter's stack may no longer exist. Waking an address on which no thread sleeps does no
    // harm.
    waiter->is_granted.store(1, std::memory_order_release);
    futex_wake(waiter->is_granted);
  }
}

}  // namespace octet
