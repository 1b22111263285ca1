// A token bucket: a rate with bursts.
#pragma once

#include <algorithm>
#include <chrono>

namespace octet {

struct Rate {
  double burst;
  double per_second;
};

// Limits how often an action may be done: `burst` times at once, and `per_second` times a second in the long run.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TokenBucket(Rate rate) : rate_(rate), tokens_(rate.burst) {}

  // Takes a token. Returns false if the bucket is empty.
  bool take(Clock::time_point now) {
    refill(now);
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

  bool is_full(Clock::time_point now) {
    refill(now);
    return tokens_ >= rate_.burst;
  }

 private:
  void refill(Clock::time_point now) {
    const double elapsed_s = std::chrono::duration<double>(now - last_).count();
    tokens_ = std::min(rate_.burst, tokens_ + std::max(0.0, elapsed_s * rate_.per_second));
    last_ = now;
  }

  Rate rate_;
  double tokens_;
  Clock::time_point last_;
};

}  // namespace octet
