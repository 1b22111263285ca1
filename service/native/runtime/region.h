// A parallel region: the tasks of one loop, and how threads claim them.
#pragma once

#include <atomic>
#include <cstdint>

#include "array.h"
#include "futex.h"

namespace octet {

// As TVM's generated code knows it (tvm/runtime/c_backend_api.h).
struct GroupEnv {
  void* sync_handle;
  int32_t num_task;
};

using Task = int (*)(int task_id, GroupEnv* env, void* cdata);

// Each thread claims the tasks of its own contiguous share first, which are the same part of the loop from layer to
// layer, so that what it wrote is in its cache; then it steals those of the others. Threads with an even number go up
// through their shares and those with an odd one go down; a thief takes them from the end that the owner reaches last. So
// what two neighbours compute remains contiguous, and they meet where their speeds have it.
class Region {
 public:
  explicit Region(int32_t most_threads) : shares_(most_threads) {}
  bool is_made() const { return shares_.size() > 0; }  // there was memory

  // To be called while no thread is in `work`.
  void begin(Task task, void* cdata, int32_t num_task, int32_t threads);

  // Brings what `work` begins with into the cache, from that of the calling thread.
  void prefetch(int32_t thread) const {
    __builtin_prefetch(this);
    __builtin_prefetch(&shares_[thread], 1);
  }

  // Computes tasks until none is left to claim.
  void work(int32_t thread);

  // Of the first task that failed; those that nobody had claimed by then are left out. 0: none did.
  int error() const { return error_.load(std::memory_order_relaxed); }

 private:
  // The tasks that nobody has claimed: [low, high) in the halves of one word, so that both ends can be taken from.
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
