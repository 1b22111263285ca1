// The core budget: a semaphore that limits how many threads of this process compute at the same time. It is fair:
// waiting calls are queued by their cost.
#pragma once

#include <atomic>
#include <cstdint>

#include "futex.h"
#include "mutex.h"

namespace octet {

class CoreBudget;

// The calls that share one part of the cores, usually those of one model. Only the budget may use the members.
struct Flow {
  static constexpr double kUnknown = -1;

  const CoreBudget* budget = nullptr;  // The budget in whose virtual time `finish` is.
  double finish = 0;                   // The end of its last call, in virtual time.
  double cost_s = kUnknown;            // The recent cost of a call, in core-seconds.
};

// The cores that a call holds while it runs, and how it acquired them.
struct Turn {
  int32_t cores;  // How many threads may compute.
  // true if its cost was small compared with the running calls, so that it does not count as concurrent
  bool is_minor;
  bool is_overdrawn;  // true if it exceeds the budget
  Flow* flow;
  double expected_s;  // in core-seconds
  int64_t begun_ns;
};

// A call acquires as many cores as it has threads, and waits until they are free. A call may acquire all cores if no
// other call runs. Concurrent calls, and calls that follow each other quickly, get equal numbers of cores.
//
// Scheduling is start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996), weighted by cost. In virtual time, a call
// begins when the last call of its flow ends, but not before now. It ends after the recent cost of its flow's calls.
// When it has run, the actual cost replaces this estimate. Waiting calls are served in the order in which they begin in
// virtual time. Therefore flows that wait get equal shares of the cores, and a call of a flow that uses less than its
// share waits only for the calls that are running. If its cost is a small fraction of theirs, it does not even wait for
// them: it exceeds the budget while its flow uses less than its share, and the kernel's scheduler divides the time.
class CoreBudget {
 public:
  // Calls that follow each other within `window_s` count as concurrent. `clock` returns nanoseconds.
  CoreBudget(int32_t cores, double window_s, int64_t (*clock)() = now_ns);

  // Waits for `cores` cores, or for fewer if other calls need some too. Calls without a flow share one flow.
  Turn acquire(int32_t cores, Flow* flow = nullptr);
  void release(const Turn& turn);
  int32_t cores() const { return cores_; }
  int32_t free();     // Free cores.
  int32_t waiting();  // Waiting calls.

  // Must be called before and after a fork. In the child, only the calling thread exists; it holds `held` cores.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child(int32_t held);

 private:
  struct Waiter {
    Turn turn{};
    double start = 0;  // in virtual time
    std::atomic<uint32_t> is_granted{0};
    Waiter* next = nullptr;
  };

  int32_t share(int32_t cores);
  void enter(Waiter& waiter);
  bool fits(const Waiter& waiter) const;
  bool is_minor(const Turn& turn) const;
  bool may_overdraw(const Waiter& waiter) const;
  void grant(Waiter& waiter, bool is_overdrawn);
  void wait(Waiter& waiter);
  void grant_next();

  const int32_t cores_;
  const int64_t window_ns_;
  int64_t (*const clock_)();
  Mutex mutex_;
  int32_t free_;
  int32_t calls_ = 0;        // Running and waiting calls, except minor ones.
  int32_t concurrency_ = 1;  // The recent maximum of concurrent calls.
  int64_t concurrency_until_ns_ = 0;
  int32_t running_ = 0;            // Running calls within the budget.
  double running_s_ = 0;           // Their expected cost.
  int32_t overdrawn_ = 0;          // Running calls that exceed the budget.
  double start_ = 0, finish_ = 0;  // The latest start and end of a granted call, in virtual time.
  Flow others_;
  Waiter* first_ = nullptr;  // a list sorted by `start`; each element is on its thread's stack
  int32_t waiting_ = 0;
};

}  // namespace octet
