#include "core_budget.h"

#include <tvm/ffi/container/array.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <utility>
#include <vector>

namespace octet {

namespace ffi = tvm::ffi;

namespace {

std::atomic<int64_t> teams{0};

}  // namespace

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t CoreBudget::acquire(int64_t cores) {
  std::unique_lock lock(mutex_);
  ++calls_;
  if (calls_ > 1 || concurrency_ > 1) {
    note_concurrency();
    cores = std::min(cores, std::max<int64_t>(1, cores_ / concurrency_));
  }
  if (cores <= free_ && waiting_.empty()) {
    free_ -= cores;
    return cores;
  }
  Waiter waiter(cores);
  waiting_.push_back(&waiter);
  waiter.granted.wait(lock, [&] { return waiter.is_granted; });
  return cores;
}

void CoreBudget::release(int64_t cores) {
  std::lock_guard lock(mutex_);
  --calls_;
  free_ += cores;
  // A call that asks for many cores is not overtaken by those that ask for few: it could starve.
  while (!waiting_.empty() && waiting_.front()->cores <= free_) {
    Waiter* first = waiting_.front();
    waiting_.pop_front();
    free_ -= first->cores;
    first->is_granted = true;
    first->granted.notify_one();  // under the lock: the waiter lives on its thread's stack
  }
}

int64_t CoreBudget::free() {
  std::lock_guard lock(mutex_);
  return free_;
}

int64_t CoreBudget::waiting() {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

void CoreBudget::note_concurrency() {
  double now = now_s();
  if (now > concurrency_until_s_) concurrency_ = 1;
  if (calls_ >= concurrency_) {
    concurrency_ = calls_;
    concurrency_until_s_ = now + window_s_;
  }
}

// What one thread has prepared, and how deep its `enter`s are nested.
struct ThreadTeam::Pool {
  int64_t entered = 0;
  int64_t taken = 0;
  int64_t threads = 0;
  ffi::Any prepared;
  std::vector<int64_t> home;
};

ThreadTeam::ThreadTeam(std::shared_ptr<CoreBudget> budget, ffi::Function prepare)
    : id_(++teams), budget_(std::move(budget)), prepare_(std::move(prepare)) {}

// By team: TVM has a pool of workers for each thread, too. Not destroyed with its thread, which may outlive Python.
thread_local std::unordered_map<int64_t, ThreadTeam::Pool>* pools = nullptr;

ThreadTeam::Pool& ThreadTeam::pool() {
  if (pools == nullptr) pools = new std::unordered_map<int64_t, Pool>();
  return (*pools)[id_];
}

void ThreadTeam::forget_thread() { delete std::exchange(pools, nullptr); }

ffi::Any ThreadTeam::prepared() { return pool().prepared; }

void ThreadTeam::enter(int64_t threads) {
  Pool& mine = pool();
  if (mine.entered == 0) mine.taken = budget_->acquire(std::min(threads, cores()));
  ++mine.entered;
  try {
    prepare(mine, std::min(threads, mine.taken));
  } catch (...) {
    leave();
    throw;
  }
}

void ThreadTeam::leave() {
  Pool& mine = pool();
  if (--mine.entered == 0) budget_->release(mine.taken);
}

void ThreadTeam::prepare(Pool& mine, int64_t threads) {
  bool is_home =
      mine.home.empty() || std::find(mine.home.begin(), mine.home.end(), sched_getcpu()) != mine.home.end();
  if (threads == mine.threads && is_home) return;
  auto prepared = prepare_(mine.prepared, threads).cast<ffi::Array<ffi::Any>>();
  mine.prepared = prepared[0];
  mine.home.clear();
  for (size_t index = 1; index < prepared.size(); ++index) mine.home.push_back(prepared[index].cast<int64_t>());
  mine.threads = threads;
}

}  // namespace octet
