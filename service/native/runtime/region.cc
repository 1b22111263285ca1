#include "region.h"

// Memory ordering: a worker sees the writes of `begin`, because the calling thread hands over the region with a release
// that the worker acquires. The calling thread sees the worker's writes, because the worker signals its end in the same
// way (`worker.cc`). Claims need no ordering: the modification order of the word ensures that each task is claimed only
// once.

namespace octet {

namespace {

constexpr uint64_t range_of(uint64_t low, uint64_t high) { return low << 32 | high; }

}  // namespace

void Region::begin(Task task, void* cdata, int32_t num_task, int32_t threads) {
  task_ = task;
  cdata_ = cdata;
  env_ = {nullptr, num_task};
  threads_ = threads;
  // Written only if needed, because a write would invalidate the workers' cache line.
  if (error() != 0) error_.store(0, std::memory_order_relaxed);
  for (int64_t thread = 0; thread < threads; ++thread) {
    uint64_t range = range_of(thread * num_task / threads, (thread + 1) * num_task / threads);
    shares_[thread].range.store(range, std::memory_order_relaxed);
  }
}

bool Region::claim(Share& share, bool from_below, int32_t& task) {
  uint64_t range = share.range.load(std::memory_order_relaxed);
  for (;;) {
    uint64_t low = range >> 32, high = range & UINT32_MAX;
    if (low >= high) return false;
    uint64_t rest = from_below ? range_of(low + 1, high) : range_of(low, high - 1);
    if (share.range.compare_exchange_weak(range, rest, std::memory_order_relaxed)) {
      task = static_cast<int32_t>(from_below ? low : high - 1);
      return true;
    }
  }
}

void Region::work(int32_t thread) {
  int32_t owner = thread;
  int32_t step = thread % 2 == 0 ? 1 : threads_ - 1;  // helps the neighbor first
  for (int32_t visited = 0; visited < threads_; ++visited, owner = (owner + step) % threads_) {
    bool goes_up = owner % 2 == 0;
    for (int32_t task; claim(shares_[owner], goes_up == (owner == thread), task);) {
      if (!run(task)) return;
    }
  }
}

bool Region::run(int32_t task) {
  if (error() != 0) return false;
  GroupEnv env = env_;
  int error = task_(task, &env, cdata_);
  int none = 0;
  if (error != 0) error_.compare_exchange_strong(none, error, std::memory_order_relaxed);
  return error == 0;
}

}  // namespace octet
