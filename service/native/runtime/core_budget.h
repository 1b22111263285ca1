// The core budget: a semaphore that bounds how many threads compute at a time in this process, fair by cost.
#pragma once

#include <atomic>
#include <cstdint>

#include "futex.h"
#include "mutex.h"

namespace octet {

class CoreBudget;

// Calls that get a share of the cores together: those of one model. Its members are the budget's own.
struct Flow {
  static constexpr double kUnknown = -1;

  const CoreBudget* budget = nullptr;  // of which `finish` is
  double finish = 0;                   // of its last call, in virtual time
  double cost_s = kUnknown;            // of a call, in seconds of one core, lately
};

// What a call holds.
struct Turn {
  int32_t cores;      // how many threads may compute
  bool is_minor;      // it cost little beside what was under way: it does not count as concurrent
  bool is_overdrawn;  // beyond the budget
  Flow* flow;
  double expected_s;  // of one core
  int64_t begun_ns;
};

// A call acquires as many cores as it has threads, and waits until they are free. A call that is alone may acquire them
// all; concurrent calls, and those that follow soon, get an equal share each.
//
// Turns weigh cost, by start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996). A call begins, in virtual time, when
// the last one of its flow ends, or now if that is over; it ends later by what calls of its flow cost lately, and when it
// has run, by what it did cost. Who waits is served in the order of these beginnings: flows that wait get equal shares of
// the cores, and a call of a flow that asks for less than its share waits for no more than the calls under way. A call
// that costs a fraction of those does not wait even for them: it runs beyond the budget, and the kernel divides the time,
// as long as its flow has taken no more than its share.
class CoreBudget {
 public:
  // Calls that follow each other within `window_s` count as concurrent. `clock`: of nanoseconds.
  CoreBudget(int32_t cores, double window_s, int64_t (*clock)() = now_ns);

  // Waits for `cores` cores, or fewer where other calls want some too. Calls without a flow are one together.
  Turn acquire(int32_t cores, Flow* flow = nullptr);
  void release(const Turn& turn);
  int32_t cores() const { return cores_; }
  int32_t free();     // cores
  int32_t waiting();  // calls

  // Around a fork. In the child only the calling thread lives on, which holds `held` cores.
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
  int32_t calls_ = 0;        // that compute or wait, and are not minor
  int32_t concurrency_ = 1;  // the most of them at a time lately
  int64_t concurrency_until_ns_ = 0;
  int32_t running_ = 0;          // calls within the budget
  double running_s_ = 0;         // what they are expected to cost
  int32_t overdrawn_ = 0;        // calls beyond it
  double start_ = 0, finish_ = 0;  // the latest of a call that was granted, in virtual time
  Flow others_;
  Waiter* first_ = nullptr;  // by `start`; each on its thread's stack
  int32_t waiting_ = 0;
};

}  // namespace octet
