// What generated code calls to share a loop among the threads of the lease that its caller holds.
#pragma once

#include <cstdint>

#include "core_budget.h"
#include "region.h"
#include "thread_tuner.h"
#include "workspace.h"

struct octet_team;

namespace octet {

// Calls `task` for each id below the number of tasks, which it is told, exactly once; returns the first error. Where the
// calling thread holds a lease of several cores its workers take part; else, and within a task, it computes alone.
//
//   num_task: 0 for as many as seem best.
int parallel_launch(Task task, void* cdata, int num_task);

struct Grant;

// Cores of `team`, of the process's where it is null, for as long as this lives: at most `threads`, and for 0 all. `flow`:
// the calls with which it shares its part of them.
class Lease {
 public:
  Lease(octet_team* team, int32_t threads, Flow* flow = nullptr);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  int32_t threads() const { return threads_; }  // that may share a region: at least 1

  // How regions are divided from here on.
  void divide(const Division& division);

 private:
  octet_team* const team_;
  Grant* const grant_;
  const int32_t threads_;
};

// The most threads of a call that asks for `threads`, and for 0 for all.
int32_t most_threads(octet_team* team, int32_t threads);

// What it takes a call to wake a thread of its own.
double wake_s();

}  // namespace octet
