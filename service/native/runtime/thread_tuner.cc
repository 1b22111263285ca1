#include "thread_tuner.h"

#include <algorithm>
#include <limits>

namespace octet {

namespace {

// The fastest of several runs counts, because other processes use the machine too. If runs take long, fewer are
// measured, because the user waits for them.
constexpr int32_t kRuns = 6, kRunsAgain = 2;
constexpr int32_t kFewestRuns = 3;
constexpr double kPatienceS = 0.1;
constexpr double kNever = std::numeric_limits<double>::infinity();

// The minimum gain for which more threads are used. There is a minimum because other calls lose these threads, and
// because measurements are noisy. The gain is relative and absolute for a call, and relative for a whole run.
constexpr double kWorth = 0.9;
constexpr double kWorthS = 0.3e-6;
constexpr double kWorthOfRun = 0.93;

// A task should be long compared with claiming it (some 20 ns, and more under contention), and short compared with a
// time slice.
constexpr double kTaskS = 1e-6;
constexpr int32_t kFewestTasks = 2, kMostTasks = 16;  // per thread

int32_t variants_up_to(int32_t threads) {
  int32_t count = 1;
  for (int32_t width = 1; width < threads; width *= 2) ++count;
  return count;
}

}  // namespace

ThreadTuner::ThreadTuner(int32_t calls, int32_t threads)
    : calls_(calls),
      most_threads_(calls == 0 ? 1 : std::max(1, threads)),
      threads_(most_threads_),
      is_done_(threads_ == 1),
      least_s_(is_done_ ? 1 : calls * variants_up_to(most_threads_)),
      best_(is_done_ ? 1 : calls),
      divisions_(is_done_ ? 1 : calls) {
  for (int32_t call = 0; call < divisions_.size(); ++call) divisions_[call] = {threads_, 0};
  for (int32_t index = 0; index < least_s_.size(); ++index) least_s_[index] = kNever;
  for (int32_t width = 1; width < most_threads_; width *= 2) variants_[uniform_++] = {width, 0, 0, kNever};
  variants_[uniform_++] = {most_threads_, 0, 0, kNever};
  variants_[uniform_] = {most_threads_, 0, 0, kNever};
}

void ThreadTuner::begin() {
  for (int32_t variant = 0; variant <= uniform_; ++variant) variants_[variant].runs = 0;
  passed_ = 0;
  is_mixed_ = is_done_ = false;
  use(0);
}

bool ThreadTuner::is_measured(const Variant& variant) const {
  if (trust_ > 0) return variant.runs >= kRunsAgain;
  return variant.runs >= kRuns || (variant.runs >= kFewestRuns && variant.spent_s > kPatienceS);
}

void ThreadTuner::record(const double* seconds, int32_t granted, double wake_s) {
  if (is_done_ || granted < threads_) return;
  if (current_ >= 0) {
    Variant& variant = variants_[current_];
    double total_s = 0;
    for (int32_t call = 0; call < calls_; ++call) {
      total_s += seconds[call];
      if (current_ < uniform_) least(current_, call) = std::min(least(current_, call), seconds[call]);
    }
    variant.least_s = std::min(variant.least_s, total_s);
    variant.spent_s += total_s;
    ++variant.runs;
  }
  // Variants take turns, so that other load on the machine affects all of them.
  int32_t next = -1, variants = uniform_ + (is_mixed_ ? 1 : 0);
  for (int32_t variant = 0; variant < variants; ++variant) {
    if (is_measured(variants_[variant])) continue;
    if (next < 0 || variants_[variant].runs < variants_[next].runs) next = variant;
  }
  if (next >= 0) return use(next);
  if (is_mixed_) return decide(wake_s);
  mix();
  use(uniform_);
}

// Assigns its best number of threads to each call. This mixture is then measured as a whole, because a call that uses
// one thread may write data that the next call reads on two threads.
void ThreadTuner::mix() {
  int32_t most = 1;
  bool is_new = false;
  for (int32_t call = 0; call < calls_; ++call) {
    int32_t best = 0;
    for (int32_t variant = 1; variant < uniform_; ++variant) {
      double before_s = least(best, call), after_s = least(variant, call);
      if (after_s < kWorth * before_s && before_s - after_s > kWorthS) best = variant;
    }
    is_new |= best_[call] != variants_[best].threads;
    best_[call] = variants_[best].threads;
    most = std::max(most, best_[call]);
  }
  variants_[uniform_] = {most, 0, 0, is_new ? kNever : variants_[uniform_].least_s};
  is_mixed_ = true;
}

void ThreadTuner::decide(double wake_s) {
  int32_t best = 0;
  for (int32_t variant : {uniform_, uniform_ - 1}) {
    double saved_s = variants_[best].least_s - variants_[variant].least_s;
    int32_t more = variants_[variant].threads - variants_[best].threads;
    bool is_faster = variants_[variant].least_s < kWorthOfRun * variants_[best].least_s;
    if (is_faster && saved_s > wake_s * std::max(0, more)) best = variant;
  }
  use(best);
  is_done_ = true;
  if (trust_ == 0) {
    trust_ = threads_ < most_threads_ ? kFirstDoubt : kFirstTrust;
  } else {
    trust_ = std::min(2 * trust_, kMostTrust);
  }
}

void ThreadTuner::use(int32_t variant) {
  current_ = variant;
  threads_ = variants_[variant].threads;
  for (int32_t call = 0; call < calls_; ++call) {
    int32_t threads = variant == uniform_ ? best_[call] : threads_;
    divisions_[call] = {threads, tasks(call, threads)};
  }
}

int32_t ThreadTuner::tasks(int32_t call, int32_t threads) {
  if (threads == 1 || variants_[0].least_s == kNever) return 0;
  double wanted = std::min(least(0, call) / kTaskS, static_cast<double>(std::numeric_limits<int32_t>::max()));
  return std::clamp(static_cast<int32_t>(wanted), kFewestTasks * threads, kMostTasks * threads);
}

}  // namespace octet
