// The workers that one call has leased, and the parallel region that they share with it.
#pragma once

#include <cstdint>

#include "array.h"
#include "placement.h"
#include "region.h"
#include "worker.h"

namespace octet {

class Group {
 public:
  // Returns null if memory runs out. Groups exist as long as their team.
  static Group* make(const Array<Core>& cores, int32_t most_threads);
  void destroy();

  // `add` is called at the begin of a lease, `remove` at its end.
  void add(Worker* worker) {
    workers_[count_++] = worker;
    processor_ = -1;  // the worker has no placement yet
  }
  Worker* remove() { return count_ == 0 ? nullptr : workers_[--count_]; }
  void forget() { count_ = 0; }
  int32_t threads() const { return count_ + 1; }

  // Keeps the workers off the core of the calling thread.
  void pin_workers();

  // Computes the tasks on this thread and `threads` - 1 workers. Returns the first error.
  //
  //   num_task: number of tasks; 0 selects a default that works without a measurement. Any number is valid for TVM's
  //   loops, which divide their work by it.
  int launch(Task task, void* cdata, int32_t num_task, int32_t threads);

  Group* next = nullptr;  // the next group in the team's list

 private:
  Group(const Array<Core>& cores, int32_t most_threads);

  Region region_;
  Placement placement_;
  Array<Worker*> workers_;
  int32_t count_ = 0;
  // the processor of the calling thread when the workers were placed; negative if they have not been placed
  int32_t processor_ = -1;
};

}  // namespace octet
