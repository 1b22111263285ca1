#include "group.h"

#include <sched.h>
#include <stdlib.h>

#include <new>

namespace octet {

namespace {

// With this many tasks, a thread that is late or descheduled delays the others by only a small part of its share.
// Claiming them, at 10 ns each, still costs much less than a parallel region gains.
constexpr int32_t kTasksPerThread = 16;

}  // namespace

Group::Group(const Array<Core>& cores, int32_t most_threads)
    : region_(most_threads), placement_(cores, most_threads), workers_(most_threads) {}

Group* Group::make(const Array<Core>& cores, int32_t most_threads) {
  void* memory = aligned_alloc(alignof(Group), sizeof(Group));
  if (memory == nullptr) return nullptr;
  auto* group = new (memory) Group(cores, most_threads);
  if (group->region_.is_made() && group->placement_.is_made() && group->workers_.size() > 0) return group;
  group->destroy();
  return nullptr;
}

void Group::destroy() {
  this->~Group();
  free(this);
}

int Group::launch(Task task, void* cdata, int32_t num_task, int32_t threads) {
  region_.begin(task, cdata, num_task > 0 ? num_task : threads * kTasksPerThread, threads);
  pin_workers();
  for (int32_t thread = 1; thread < threads; ++thread) workers_[thread - 1]->post(&region_, thread);
  for (int32_t thread = 1; thread < threads; ++thread) workers_[thread - 1]->wake();  // takes microseconds per worker
  is_in_region = true;
  region_.work(0);
  is_in_region = false;
  for (int32_t thread = 1; thread < threads; ++thread) workers_[thread - 1]->join();
  return region_.error();
}

// Keeps workers off the calling thread's core. On the same core, a worker and the calling thread would wait for each
// other.
void Group::pin_workers() {
  int32_t processor = sched_getcpu();
  if (processor == processor_) return;
  placement_.follow(processor, threads());
  for (int32_t index = 0; index < count_; ++index) workers_[index]->pin(placement_.share(index + 1));
  processor_ = processor;
}

}  // namespace octet
