#include "worker.h"

#include <sched.h>
#include <signal.h>

#include <stdlib.h>

#include <initializer_list>
#include <new>

// The states of a worker, and which thread changes them:
//
//   kIdle -> kAsleep           worker: it had no work for a while
//   kIdle, kAsleep -> kPosted  caller; from kAsleep it must also wake the worker
//   kPosted -> kBusy           worker: it begins
//   kPosted -> kIdle           caller: the worker has not begun, and the caller does not wait for it
//   kBusy -> kIdle             worker: it has finished
//   kBusy -> kAwaited          caller: it will sleep until the worker has finished
//   kAwaited -> kAsleep        worker: it has finished, and leaves the core to the caller
//   kIdle, kAsleep -> kQuit    caller
//
// `region_` and `thread_` are written before kPosted is stored with release. The worker uses them only after its
// acquire of kBusy, and the caller writes them again only after it has seen kIdle or kAsleep. All accesses of a worker
// to a region come before its release of kIdle or kAsleep, which `join` acquires. A worker that wakes up late therefore
// finds either no region or a new one, never one that has ended.

namespace octet {

__thread bool is_in_region = false;

namespace {

constexpr size_t kStackBytes = 1 << 20;
// How long an idle worker spins. The layers of a model are a few microseconds apart. Waking a thread takes the caller 3
// to 5 us, and the thread starts 10 to 50 us later. While a worker spins, other threads cannot use the core.
constexpr int64_t kRestNs = 40'000;
constexpr int64_t kPatienceNs = 15'000;  // The usual difference between threads that finish together.
constexpr int64_t kGlanceNs = 10'000;    // The time in which it is observed whether a thread makes progress.
constexpr int64_t kLongestNs = 2'000'000;

std::atomic<int64_t> least_wake_ns{5'000};

void block_signals(sigset_t* before) {
  sigset_t blocked;
  sigfillset(&blocked);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&blocked, signal);
  pthread_sigmask(SIG_SETMASK, &blocked, before);
}

bool set_affinity(pthread_t thread, const Mask& mask) {
  return pthread_setaffinity_np(thread, Mask::kBytes, reinterpret_cast<const cpu_set_t*>(mask.words())) == 0;
}

}  // namespace

Worker* Worker::start() {
  void* memory = aligned_alloc(alignof(Worker), sizeof(Worker));
  if (memory == nullptr) return nullptr;
  auto* worker = new (memory) Worker();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t before;
  block_signals(&before);  // signals are delivered to the program's threads, which expect them
  int refused = pthread_create(&worker->handle_, &attributes, main, worker);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (refused != 0) {
    free(worker);
    return nullptr;
  }
  pthread_setname_np(worker->handle_, "octet-worker");
  if (pthread_getcpuclockid(worker->handle_, &worker->clock_) != 0) worker->clock_ = CLOCK_MONOTONIC;
  return worker;
}

void* Worker::main(void* worker) {
  is_in_region = true;
  static_cast<Worker*>(worker)->serve();
  return nullptr;
}

void Worker::serve() {
  for (;;) {
    uint32_t state = state_.load(std::memory_order_acquire);
    if (state == kQuit) return;
    if (state == kPosted) {
      Region* region = region_.load(std::memory_order_relaxed);
      // Prefetched while this core acquires the cache line of `state_`.
      region->prefetch(thread_.load(std::memory_order_relaxed));
      if (!state_.compare_exchange_strong(state, kBusy, std::memory_order_acquire)) continue;
      region_.load(std::memory_order_relaxed)->work(thread_.load(std::memory_order_relaxed));
      finish();
    } else {
      rest();
    }
  }
}

// Waits until work may have arrived.
void Worker::rest() {
  auto is_wanted = [this] {
    uint32_t state = state_.load(std::memory_order_relaxed);
    return state != kIdle && state != kAsleep;
  };
  uint32_t idle = kIdle;
  bool is_asleep = state_.load(std::memory_order_relaxed) == kAsleep;
  if (!is_asleep && spin(is_wanted, kRestNs)) return;
  if (!is_asleep && !state_.compare_exchange_strong(idle, kAsleep, std::memory_order_relaxed)) return;
  while (!is_wanted() && state_.load(std::memory_order_relaxed) == kAsleep) futex_wait(state_, kAsleep);
}

void Worker::finish() {
  uint32_t state = kBusy;
  if (state_.compare_exchange_strong(state, kIdle, std::memory_order_release, std::memory_order_relaxed)) return;
  state_.store(kAsleep, std::memory_order_release);
  // wakes the caller; the only other thread that sleeps on this word is the current one, which is awake
  futex_wake(state_);
}

void Worker::post(Region* region, int32_t thread) {
  region_.store(region, std::memory_order_relaxed);
  thread_.store(thread, std::memory_order_relaxed);
  is_to_be_woken_ = state_.exchange(kPosted, std::memory_order_release) == kAsleep;
}

void Worker::wake() {
  if (!is_to_be_woken_) return;
  int64_t begun_ns = now_ns();
  futex_wake(state_);
  int64_t taken_ns = now_ns() - begun_ns, least_ns = least_wake_ns.load(std::memory_order_relaxed);
  if (taken_ns < least_ns) least_wake_ns.store(taken_ns, std::memory_order_relaxed);
}

int64_t Worker::wake_ns() { return least_wake_ns.load(std::memory_order_relaxed); }

void Worker::join() {
  uint32_t state = state_.load(std::memory_order_acquire);
  if (state == kPosted && state_.compare_exchange_strong(state, kIdle, std::memory_order_acquire)) return;
  if (!spin([this] { return !is_busy(); }, kPatienceNs)) await();
}

// Waits for a worker that should already have finished. The kernel may have descheduled the worker in the middle of a
// task in favor of another process. In this case, the worker would continue only after that process's time slice of
// several milliseconds. So the worker is moved to this core, where it continues at once.
void Worker::await() {
  int64_t until = now_ns() + kLongestNs;
  bool is_running = true;
  while (is_busy() && is_running && now_ns() < until) {
    int64_t before = nanoseconds_of(clock_);
    if (spin([this] { return !is_busy(); }, kGlanceNs)) return;
    is_running = nanoseconds_of(clock_) - before > kGlanceNs / 4;
  }
  if (is_running) {
    sleep_until_done();
    return;
  }
  Mask here{};
  here.add(sched_getcpu());
  bool is_fetched = set_affinity(handle_, here);
  sleep_until_done();
  if (is_fetched) set_affinity(handle_, mask_);
}

void Worker::sleep_until_done() {
  uint32_t state = kBusy;
  state_.compare_exchange_strong(state, kAwaited, std::memory_order_acquire);
  while (state_.load(std::memory_order_acquire) == kAwaited) futex_wait(state_, kAwaited);
}

void Worker::pin(const Mask& mask) {
  if (mask == mask_) return;
  mask_ = mask;  // set even if a sandbox forbids the call, because the next call would fail too
  set_affinity(handle_, mask);
}

void Worker::stop() {
  if (state_.exchange(kQuit, std::memory_order_release) == kAsleep) futex_wake(state_);
  pthread_join(handle_, nullptr);
  free(this);
}

}  // namespace octet
