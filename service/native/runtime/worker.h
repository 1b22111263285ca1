// One thread that computes parts of parallel regions for whoever has it on lease.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "futex.h"
#include "placement.h"
#include "region.h"

namespace octet {

class Worker {
 public:
  // Starts its thread. Null: the system has no more threads for this process.
  static Worker* start();

  // All of the following are for the thread that has it on lease.

  // Offers it a part of a region. If it sleeps, it does not begin before `wake`.
  void post(Region* region, int32_t thread);
  void wake();

  // What it takes a caller to wake a worker: the least that any has seen, or an ordinary value.
  static int64_t wake_ns();

  // Returns when it will not touch the region any more: if it has not begun it never will, or else it has ended.
  void join();

  // Has it run on these processors, where the system allows that.
  void place(const Mask& mask);

  // Ends its thread and deletes it.
  void stop();

 private:
  enum State : uint32_t { kIdle, kAsleep, kPosted, kBusy, kAwaited, kQuit };

  static void* main(void* worker);
  void serve();
  void rest();
  void finish();
  bool is_busy() const { return state_.load(std::memory_order_acquire) == kBusy; }
  void await();
  void sleep_until_done();

  alignas(kApartBytes) std::atomic<uint32_t> state_{kIdle};
  std::atomic<int32_t> thread_{0};
  std::atomic<Region*> region_{nullptr};
  alignas(kApartBytes) pthread_t handle_{};
  clockid_t clock_{};  // how long it has computed
  Mask mask_{};
  bool is_to_be_woken_ = false;
};

// Whether the calling thread is in a region: those that are nested in it are computed by that thread alone.
extern __thread bool is_in_region;

}  // namespace octet
