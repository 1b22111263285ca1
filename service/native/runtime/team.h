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

// An opaque type in the C interface; its functions are in `octet.h`.
//
// A call holds a lease: as many cores of its team as it has threads, and a worker for each thread except the calling
// one. Workers are started when a lease first needs them. The number of workers is always less than the number of the
// budget's cores. This number is sufficient: a lease of n cores has n - 1 workers, so the idle workers and the workers
// that may still be started suffice for every lease.
struct octet_team {
 public:
  // Returns null if memory runs out.
  static octet_team* make(const octet::Core* cores, int32_t count, int32_t budget, double window_s);
  void destroy();  // all leases must have ended
  octet_team(const octet_team&) = delete;
  octet_team& operator=(const octet_team&) = delete;

  // Waits for the cores of a call of at most `threads` threads; 0 means all cores. Until `leave`, the regions that this
  // thread launches are divided among workers. A nested `enter` does not wait.
  octet::Grant* enter(int32_t threads, octet::Flow* flow = nullptr);
  void leave();

  octet::CoreBudget& budget() { return budget_; }

  octet_team* next = nullptr;  // the next team in the list of all teams

  // In the child, only the calling thread exists.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  octet_team(int32_t count, int32_t budget, double window_s);
  ~octet_team() = default;
  octet::Group* lease_group(int32_t threads);
  void return_group(octet::Group* group);

  octet::Array<octet::Core> cores_;
  octet::CoreBudget budget_;
  octet::Mutex mutex_;
  octet::Array<octet::Worker*> idle_workers_;  // a stack: the workers that worked last are at the end
  int32_t idle_count_ = 0;
  octet::Group* idle_groups_ = nullptr;
};

namespace octet {

// The resources that one `enter` of the calling thread holds, or several nested ones of the same width.
struct Grant {
  octet_team* team;
  Group* group;       // Null if the call has a single thread.
  Turn turn;          // Has no cores if it is nested in a grant that holds them.
  int32_t threads;    // The number of threads that may share a region.
  Division division;  // The division of the next region.
  int32_t depth;
  Grant* outer;
};

// The innermost grant of the calling thread, or null.
extern __thread Grant* current_grant;

// Returns the team of all cores that this process may use. It is created once and never deleted, because threads may
// outlive `main`. Returns null if memory runs out.
octet_team* default_team();

}  // namespace octet
