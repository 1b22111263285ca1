// Chooses the number of threads for each call of a plan by measuring the first runs of an instance.
#pragma once

#include <cstdint>

#include "array.h"

namespace octet {

// How a loop is divided.
struct Division {
  int32_t threads;
  int32_t tasks;  // 0 means the default without a measurement
};

// The gain of a second thread depends on the layer, on the machine, and on where the layer's operands are cached:
// reading data that another core wrote can take longer than computing a small layer. So the gain is measured in actual
// use. In the first runs, all calls are divided among 1, 2, 4 ... threads in turn. Results do not depend on this.
// Afterwards, each call uses the number of threads with which it was fastest, and a run acquires the cores that its
// widest call needs. If more threads gain too little, all calls use one.
class ThreadTuner {
 public:
  // `calls`: the number of calls in a run. `threads`: the maximum number of threads.
  ThreadTuner(int32_t calls, int32_t threads);
  // False if memory ran out.
  bool is_made() const { return least_s_.size() > 0 && best_.size() > 0 && divisions_.size() > 0; }

  bool is_done() const { return is_done_; }
  int32_t threads() const { return threads_; }                  // The maximum of threads in the next run.
  const Division* divisions() const { return &divisions_[0]; }  // [calls], for the next run.

  // Counts a run that was not measured. After some hundred of these, measures again, and then ever more rarely, because
  // another process may have used a core during the first measurement. If threads are unused, measures again sooner,
  // because a disturbance during the first runs would slow down every later run. The fastest times of all measurements
  // count.
  void pass() {
    if (most_threads_ > 1 && ++passed_ == trust_) begin();
  }

  // Records the times of a run that used `divisions`. `granted`: how many threads it could use.
  //
  //   seconds: [calls]
  //   wake_s: the time that the caller needs to wake a sleeping thread
  void record(const double* seconds, int32_t granted, double wake_s);

 private:
  // The number of runs between measurements. Two slow runs among so many cost less than 1 %.
  static constexpr int32_t kFirstTrust = 256, kMostTrust = 1 << 20;
  // The number of runs before the first repeated measurement if some threads are unused.
  static constexpr int32_t kFirstDoubt = 16;
  // the maximum of variants: powers of two up to 8192, all threads, and the mixture
  static constexpr int32_t kMost = 16;

  // A variant uses the same number of threads for all calls. Only the last variant uses the best number for each call.
  struct Variant {
    int32_t threads;
    int32_t runs;    // The number of runs in the current measurement.
    double spent_s;  // Time of these runs.
    double least_s;  // Fastest whole run of all measurements.
  };

  void begin();
  bool is_measured(const Variant& variant) const;
  double& least(int32_t variant, int32_t call) { return least_s_[variant * calls_ + call]; }
  int32_t tasks(int32_t call, int32_t threads);
  void mix();
  void decide(double wake_s);
  void use(int32_t variant);

  const int32_t calls_;
  const int32_t most_threads_;
  Variant variants_[kMost];
  int32_t uniform_ = 0;   // Number of uniform variants.
  int32_t current_ = -1;  // -1 in the first run, which is ignored because caches are cold and pages unmapped.
  int32_t threads_;
  int32_t passed_ = 0, trust_ = 0;
  bool is_mixed_ = false;  // true if the current measurement includes the mixture
  bool is_done_;
  Array<double> least_s_;      // The shortest times: [uniform variants, calls].
  Array<int32_t> best_;        // The threads in the mixture: [calls].
  Array<Division> divisions_;  // The divisions of the next run: [calls], at least one element.
};

}  // namespace octet
