// The functions with which generated code divides a loop among the threads of its caller's lease.
#pragma once

#include <cstdint>

#include "core_budget.h"
#include "region.h"
#include "thread_tuner.h"
#include "workspace.h"

struct octet_team;

namespace octet {

// Calls `task` exactly once for each id below the number of tasks, and passes it this number. Returns the first error.
// If the calling thread holds a lease of several cores, its workers take part. Otherwise, or within a task, the thread
// computes alone.
//
//   num_task: number of tasks; 0 selects the best number.
int parallel_launch(Task task, void* cdata, int num_task);

struct Grant;

// Holds up to `threads` cores of `team` (or of the process's team if it is null) during its lifetime; 0 means all.
// Calls with the same `flow` share one part of the cores.
class Lease {
 public:
  Lease(octet_team* team, int32_t threads, Flow* flow = nullptr);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  int32_t threads() const { return threads_; }  // the number of threads that may share a region, at least 1

  // Sets how the following regions are divided.
  void divide(const Division& division);

 private:
  octet_team* const team_;
  Grant* const grant_;
  const int32_t threads_;
};

// Returns the maximum number of threads for a call that requests `threads`; 0 requests all.
int32_t most_threads(octet_team* team, int32_t threads);

// Returns the time in seconds that a call needs to wake one of its threads.
double wake_s();

}  // namespace octet
