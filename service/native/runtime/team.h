// The threads and cores that the calls of a process share.
#pragma once

#include <cstdint>

#include "array.h"
#include "core_budget.h"
#include "group.h"
#include "mutex.h"
#include "placement.h"
#include "thread_tuner.h"
#include "worker.h"

namespace octet {
struct Grant;
}

// In the C interface an opaque type; `octet.h` has its functions.
//
// A call holds a lease: of its team's cores as many as it has threads, and for each but its own a worker. Workers are
// started when a lease first needs them, and never more than the budget without one: leases of n cores each have n - 1, so
// that those that are free and those to be started suffice for every lease.
struct octet_team {
 public:
  // Null: there is no memory.
  static octet_team* make(const octet::Core* cores, int32_t count, int32_t budget, double window_s);
  void destroy();  // after its leases
  octet_team(const octet_team&) = delete;
  octet_team& operator=(const octet_team&) = delete;

  // Waits for the cores of a call of at most `threads` threads, of all cores where it is 0. From here to `leave`, regions
  // that this thread launches are shared. A nested `enter` does not wait.
  octet::Grant* enter(int32_t threads, octet::Flow* flow = nullptr);
  void leave();

  octet::CoreBudget& budget() { return budget_; }

  octet_team* next = nullptr;  // of all teams

  // In the child only the calling thread lives on.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  octet_team(int32_t count, int32_t budget, double window_s);
  ~octet_team() = default;
  octet::Group* lend(int32_t threads);
  void give_back(octet::Group* group);

  octet::Array<octet::Core> cores_;
  octet::CoreBudget budget_;
  octet::Mutex mutex_;
  octet::Array<octet::Worker*> idle_workers_;  // those that worked last at the end
  int32_t idle_count_ = 0;
  octet::Group* idle_groups_ = nullptr;
};

namespace octet {

// What one `enter` of the calling thread, or several nested ones of the same width, hold.
struct Grant {
  octet_team* team;
  Group* group;     // null: of one thread
  Turn turn;        // without cores: a nested one, whose cores are those of an outer one
  int32_t threads;  // that may share a region
  Division division;  // of the next region
  int32_t depth;
  Grant* outer;
};

// The calling thread's innermost; null: it holds none.
extern __thread Grant* current_grant;

// The team of the cores that this process may use, made once and never deleted: threads may outlive `main`. Null: there
// is no memory.
octet_team* default_team();

}  // namespace octet
