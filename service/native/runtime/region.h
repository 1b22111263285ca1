// A parallel region: the tasks of one loop, and the rules by which threads claim them.
#pragma once

#include <atomic>
#include <cstdint>

#include "array.h"
#include "futex.h"

namespace octet {

// The layout is defined by TVM's generated code (tvm/runtime/c_backend_api.h).
struct GroupEnv {
  void* sync_handle;
  int32_t num_task;
};

using Task = int (*)(int task_id, GroupEnv* env, void* cdata);

// Each thread first claims the tasks of its own contiguous share. Its share is the same part of the loop in every
// layer, so that the thread's previous output is in its cache. Then it steals tasks of the others. Threads with an even
// number go up through their shares, and those with an odd number go down. A thief takes tasks from the end that the
// owner reaches last. So the tasks of two neighbors stay contiguous, and the position at which they meet depends on
// their speeds.
class Region {
 public:
  explicit Region(int32_t most_threads) : shares_(most_threads) {}
  bool is_made() const { return shares_.size() > 0; }  // false if memory ran out

  // Must be called while no thread is in `work`.
  void begin(Task task, void* cdata, int32_t num_task, int32_t threads);

  // Prefetches, from the calling thread's cache, the data that `work` reads first.
  void prefetch(int32_t thread) const {
    __builtin_prefetch(this);
    __builtin_prefetch(&shares_[thread], 1);
  }

  // Computes tasks until all are claimed.
  void work(int32_t thread);

  // Returns the error of the first task that failed, or 0. After a failure, unclaimed tasks are skipped.
  int error() const { return error_.load(std::memory_order_relaxed); }

 private:
  // The unclaimed tasks [low, high), in the halves of one word, so that both ends can be claimed from atomically.
  struct alignas(kApartBytes) Share {
    std::atomic<uint64_t> range;
  };

  static bool claim(Share& share, bool from_below, int32_t& task);
  bool run(int32_t task);

  Task task_ = nullptr;
  void* cdata_ = nullptr;
  GroupEnv env_{};
  int32_t threads_ = 0;
  Array<Share> shares_;
  alignas(kApartBytes) std::atomic<int> error_{0};
};

}  // namespace octet
