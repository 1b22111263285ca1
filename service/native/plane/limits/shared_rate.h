// A rate limit that many users ("parts") share. Each part has its own limit as well.
#pragma once

#include <chrono>
#include <cmath>

#include "limits/token_bucket.h"

namespace octet {

// If the parts together exceed the shared rate, the parts with the heaviest use are refused, and never one with little
// use. A part's recent use decays with time. A part is a heavy user if its use is at least half of the use-weighted
// average. In this average, each part is weighted by its use: if one part has a hundred uses and another has one, the
// average is almost a hundred. So spreading uses over many parts, however evenly, does not help a client.
class SharedRate {
 public:
  using Clock = TokenBucket::Clock;

  // The use by one part. Requires the lock that guards the whole.
  class Part {
   public:
    explicit Part(Rate rate) : bucket_(rate) {}
    // Returns true if the state of this part equals that of a new part.
    bool is_unused(Clock::time_point now) { return bucket_.is_full(now) && lately_ < 1; }

   private:
    friend class SharedRate;
    TokenBucket bucket_;
    double lately_ = 0;
    Clock::time_point last_;
  };

  // `whole`: the rate of all parts together.
  explicit SharedRate(Rate whole)
      : bucket_(whole), fades_s_(whole.per_second > 0 ? whole.burst / whole.per_second : 0) {}

  // Returns false if the part exceeds its rate, or is a heavy user while the shared rate is exceeded.
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
  double sum_ = 0, squares_ = 0;  // sum, and sum of squares, of the recent uses of the parts
  Clock::time_point last_;
};

}  // namespace octet
