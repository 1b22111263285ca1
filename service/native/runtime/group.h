// The workers that one call has on lease, and the region that they share with it.
#pragma once

#include <cstdint>

#include "array.h"
#include "placement.h"
#include "region.h"
#include "worker.h"

namespace octet {

class Group {
 public:
  // Null: there is no memory. Groups live for as long as their team.
  static Group* make(const Array<Core>& cores, int32_t most_threads);
  void destroy();

  // Workers, for a lease that begins; none are left when it ends.
  void add(Worker* worker) {
    workers_[count_++] = worker;
    processor_ = -1;  // it is not placed
  }
  Worker* remove() { return count_ == 0 ? nullptr : workers_[--count_]; }
  void forget() { count_ = 0; }
  int32_t threads() const { return count_ + 1; }

  // Keeps the workers away from the core of the calling thread.
  void place();

  // Computes the tasks on this thread and `threads` - 1 workers. Returns the first error.
  //
  //   num_task: 0 for as many as are right without knowing how long they take. Any number is right for TVM's loops, which
  //   divide by it.
  int launch(Task task, void* cdata, int32_t num_task, int32_t threads);

  Group* next = nullptr;  // in a list of its team's

 private:
  Group(const Array<Core>& cores, int32_t most_threads);

  Region region_;
  Placement placement_;
  Array<Worker*> workers_;
  int32_t count_ = 0;
  int32_t processor_ = -1;  // where the calling thread was when the workers were placed
};

}  // namespace octet
