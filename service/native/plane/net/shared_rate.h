// A rate that all parts of a whole share, each of which has a rate of its own.
#pragma once

#include <chrono>
#include <cmath>

#include "net/token_bucket.h"

namespace octet {

// If the parts together exceed the rate of the whole, those that use it most are refused, and never one that uses it
// little. What a part has used lately fades with time. A part counts as one that uses it most from half of the average
// that the uses themselves see: of a hundred uses by one part and one use by another, nearly all see a hundred. So it
// does not help to spread uses over many parts, however evenly.
class SharedRate {
 public:
  using Clock = TokenBucket::Clock;

  // What one part has used. For whoever has the lock of the whole.
  class Part {
   public:
    explicit Part(Rate rate) : bucket_(rate) {}
    // Whether it is as a new one.
    bool is_unused(Clock::time_point now) { return bucket_.is_full(now) && lately_ < 1; }

   private:
    friend class SharedRate;
    TokenBucket bucket_;
    double lately_ = 0;
    Clock::time_point last_{};
  };

  // `whole`: of all parts together.
  explicit SharedRate(Rate whole) : bucket_(whole), fades_s_(whole.per_second > 0 ? whole.burst / whole.per_second : 0) {}

  // False: the part does it too often.
  bool take(Part& part, Clock::time_point now) {
    double faded = faded_since(last_, now);
    sum_ *= faded;
    squares_ *= faded * faded;
    part.lately_ *= faded_since(part.last_, now);
    sum_ += 1;
    squares_ += 2 * part.lately_ + 1;
    part.lately_ += 1;
    if (!part.bucket_.take(now)) return false;
    return bucket_.take(now) || part.lately_ <= kFew || part.lately_ < kMany * squares_ / sum_;
  }

 private:
  static constexpr double kFew = 10, kMany = 0.5;

  double faded_since(Clock::time_point& last, Clock::time_point now) const {
    double elapsed_s = std::chrono::duration<double>(now - last).count();
    if (elapsed_s <= 0) return 1;
    last = now;
    return fades_s_ > 0 ? std::exp(-elapsed_s / fades_s_) : 1;
  }

  TokenBucket bucket_;
  double fades_s_;
  double sum_ = 0, squares_ = 0;  // of what the parts have used lately
  Clock::time_point last_{};
};

}  // namespace octet
