#include "turns.h"

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

constexpr double kCompanyS = 0.1;  // calls that follow each other at once are not alone in between
std::atomic<int64_t> crews{0};

}  // namespace

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t Turns::take(int64_t cores) {
  std::unique_lock lock(mutex_);
  ++calls_;
  if (calls_ > 1 || company_ > 1) {
    look_around();
    cores = std::min(cores, std::max<int64_t>(1, cores_ / company_));
  }
  if (cores <= free_ && waiting_.empty()) {
    free_ -= cores;
    return cores;
  }
  Waiter waiter(cores);
  waiting_.push_back(&waiter);
  waiter.turn.wait(lock, [&] { return waiter.has_turn; });
  return cores;
}

void Turns::give_back(int64_t cores) {
  std::lock_guard lock(mutex_);
  --calls_;
  free_ += cores;
  // Who wants many cores is not overtaken by those who want few: that could go on for ever.
  while (!waiting_.empty() && waiting_.front()->cores <= free_) {
    Waiter* first = waiting_.front();
    waiting_.pop_front();
    free_ -= first->cores;
    first->has_turn = true;
    first->turn.notify_one();  // under the lock: the waiter lives on its thread's stack
  }
}

int64_t Turns::free() {
  std::lock_guard lock(mutex_);
  return free_;
}

int64_t Turns::waiting() {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

void Turns::look_around() {
  double now = now_s();
  if (now > company_until_s_) company_ = 1;
  if (calls_ >= company_) {
    company_ = calls_;
    company_until_s_ = now + kCompanyS;
  }
}

// What one thread has prepared, and how deep it is inside.
struct Crew::Pool {
  int64_t entered = 0;
  int64_t taken = 0;
  int64_t threads = 0;
  ffi::Any prepared;
  std::vector<int64_t> home;
};

Crew::Crew(std::shared_ptr<Turns> turns, ffi::Function prepare)
    : id_(++crews), turns_(std::move(turns)), prepare_(std::move(prepare)) {}

// By crew: TVM has a pool of workers for each thread, too. Not destroyed with its thread, which may outlive Python.
thread_local std::unordered_map<int64_t, Crew::Pool>* pools = nullptr;

Crew::Pool& Crew::pool() {
  if (pools == nullptr) pools = new std::unordered_map<int64_t, Pool>();
  return (*pools)[id_];
}

void Crew::forget_thread() { delete std::exchange(pools, nullptr); }

ffi::Any Crew::prepared() { return pool().prepared; }

void Crew::enter(int64_t threads) {
  Pool& mine = pool();
  if (mine.entered == 0) mine.taken = turns_->take(std::min(threads, cores()));
  ++mine.entered;
  try {
    prepare(mine, std::min(threads, mine.taken));
  } catch (...) {
    leave();
    throw;
  }
}

void Crew::leave() {
  Pool& mine = pool();
  if (--mine.entered == 0) turns_->give_back(mine.taken);
}

void Crew::prepare(Pool& mine, int64_t threads) {
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
