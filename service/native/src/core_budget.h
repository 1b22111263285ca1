// The core budget: a fair semaphore that bounds how many threads compute at a time in this process.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>

namespace octet {

double now_s();  // of CLOCK_MONOTONIC
inline constexpr double kNever = std::numeric_limits<double>::infinity();  // by `now_s()`
inline constexpr double kConcurrencyWindowS = 0.1;  // calls that follow each other at once count as concurrent

// A call acquires as many cores as it has threads, and waits first come, first served until they are free. A call that
// is alone may acquire them all; concurrent calls, and those that follow soon, get an equal share each.
class CoreBudget {
 public:
  // Calls that follow each other within `window_s` count as concurrent.
  CoreBudget(int64_t cores, double window_s) : cores_(cores), window_s_(window_s), free_(cores) {}

  // Waits for `cores` cores, or fewer where other calls want some too. Returns how many to `release`.
  int64_t acquire(int64_t cores);
  void release(int64_t cores);
  int64_t cores() const { return cores_; }
  int64_t free();     // cores
  int64_t waiting();  // calls

 private:
  struct Waiter {
    explicit Waiter(int64_t asked) : cores(asked) {}
    int64_t cores;
    bool is_granted = false;
    std::condition_variable granted;
  };

  void note_concurrency();

  const int64_t cores_;
  const double window_s_;
  std::mutex mutex_;
  int64_t free_;
  int64_t calls_ = 0;        // that compute or wait
  int64_t concurrency_ = 1;  // the most calls at a time lately
  double concurrency_until_s_ = 0;
  std::deque<Waiter*> waiting_;
};

// The core budget of a process, and the workers with which each calling thread shares its kernels.
class ThreadTeam {
 public:
  // `prepare(pool, threads)`, in Python, makes the calling thread and its workers share kernels among `threads` threads.
  // `pool` is what it returned first the last time, or None. What follows in the array that it returns are the
  // processors on which the thread may find itself without having to prepare again; none: any.
  ThreadTeam(std::shared_ptr<CoreBudget> budget, tvm::ffi::Function prepare);

  // Waits for the cores of a call of at most `threads` threads. A nested `enter` does not wait.
  void enter(int64_t threads);
  void leave();
  int64_t cores() const { return budget_->cores(); }
  // Frees what the calling thread has prepared, in every team. To be called before the thread ends.
  static void forget_thread();

  // What `prepare` returned first the last time in this thread.
  tvm::ffi::Any prepared();

  struct Pool;

 private:
  Pool& pool();
  void prepare(Pool& pool, int64_t threads);

  const int64_t id_;
  const std::shared_ptr<CoreBudget> budget_;
  const tvm::ffi::Function prepare_;
};

// Holds the cores of one call.
class CoreLease {
 public:
  CoreLease(ThreadTeam& team, int64_t threads) : team_(team) { team_.enter(threads); }
  ~CoreLease() { team_.leave(); }
  CoreLease(const CoreLease&) = delete;
  CoreLease& operator=(const CoreLease&) = delete;

 private:
  ThreadTeam& team_;
};

}  // namespace octet
