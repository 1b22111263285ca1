// A thread that computes parts of parallel regions for the thread that leases it.
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
  // Starts the thread. Returns null if the system has no more threads for this process.
  static Worker* start();

  // Only the thread that leases the worker may call the following functions.

  // Offers a part of a region to the worker. A worker that sleeps does not begin before `wake`.
  void post(Region* region, int32_t thread);
  void wake();

  // Returns the time in nanoseconds to wake a worker: the shortest measured so far, or a typical value.
  static int64_t wake_ns();

  // Returns when the worker will not access the region any more, because it has finished or will never begin.
  void join();

  // Restricts the worker to these processors, if the system permits it.
  void pin(const Mask& mask);

  // Ends the thread and deletes the worker.
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
  clockid_t clock_{};  // measures its CPU time
  Mask mask_{};
  bool is_to_be_woken_ = false;
};

// True if the calling thread is in a region. Regions nested in it are computed by that thread alone.
extern __thread bool is_in_region;

}  // namespace octet
