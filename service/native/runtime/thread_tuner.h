// How many threads each call of a plan gets: the fastest number in the first runs of an instance.
#pragma once

#include <cstdint>

#include "array.h"

namespace octet {

// How a loop is divided.
struct Division {
  int32_t threads;
  int32_t tasks;  // 0: as many as the runtime does without a measurement
};

// What a second thread saves depends on the layer, on where its operands lie (what another core has written takes longer
// to read than a small layer to compute) and on the machine, so it is measured where it counts: in the first runs, each of
// which divides all calls among 1, 2, 4 ... threads in turn. Answers do not depend on it. Then each call gets the number
// with which it was fastest, and the run the cores that the largest call wants; or one, where the others save too little.
class ThreadTuner {
 public:
  // `calls` of a run, by at most `threads` threads.
  ThreadTuner(int32_t calls, int32_t threads);
  bool is_made() const { return least_s_.size() > 0 && best_.size() > 0 && divisions_.size() > 0; }  // there was memory

  bool is_done() const { return is_done_; }
  int32_t threads() const { return threads_; }                          // of the next run, at most
  const Division* divisions() const { return &divisions_[0]; }            // [calls], in the next run

  // A run that was not measured. After some hundred of them it measures a little more, and then ever more rarely: a
  // neighbour may have had a core at the time. Where threads are left unused it does so sooner, for a neighbour during the
  // first runs would cost every run since. The least times count, of all measurements.
  void pass() {
    if (most_threads_ > 1 && ++passed_ == trust_) begin();
  }

  // The times of a run, as the next one was to be; `granted`: how many threads it could have.
  //
  //   seconds: [calls]
  //   wake_s: what it takes the caller to wake a thread that sleeps.
  void record(const double* seconds, int32_t granted, double wake_s);

 private:
  static constexpr int32_t kFirstTrust = 256, kMostTrust = 1 << 20;  // runs; two slow ones of so many are below 1 %
  static constexpr int32_t kFirstDoubt = 16;                         // runs on fewer threads than there are
  static constexpr int32_t kMost = 16;  // variants: powers of two up to 8192, all threads, and the mixture

  // All calls on as many threads; the last variant has each call on its best number.
  struct Variant {
    int32_t threads;
    int32_t runs;    // in this measurement
    double spent_s;  // on them
    double least_s;  // of whole runs, in all
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
  int32_t uniform_ = 0;   // variants
  int32_t current_ = -1;  // -1: the first run, which finds caches cold and pages unmapped, and counts for nothing
  int32_t threads_;
  int32_t passed_ = 0, trust_ = 0;
  bool is_mixed_ = false;  // in this measurement
  bool is_done_;
  Array<double> least_s_;       // [uniform variants, calls]
  Array<int32_t> best_;         // [calls]: threads, in the mixture
  Array<Division> divisions_;   // [calls], at least one
};

}  // namespace octet
