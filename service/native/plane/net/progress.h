// Checks that a peer sends, or reads, at a minimum rate.
#pragma once

#include <cstdint>

namespace octet {

struct MinimumRate {
  double period_s = 60;  // in each period of this length, `bytes` bytes are required
  uint64_t bytes = 1;
};

class Progress {
 public:
  explicit Progress(double now_s, const MinimumRate& rate) : due_s_(now_s + rate.period_s) {}

  // Must be called regularly. `total_bytes` counts from the beginning. Returns false if the peer was too slow.
  bool is_kept(bool is_awaited, uint64_t total_bytes, double now_s, const MinimumRate& rate) {
    if (is_awaited && now_s < due_s_) return true;
    if (is_awaited && total_bytes - seen_bytes_ < rate.bytes) return false;
    seen_bytes_ = total_bytes;
    due_s_ = now_s + rate.period_s;
    return true;
  }

 private:
  double due_s_;
  uint64_t seen_bytes_ = 0;  // total at the beginning of the period
};

}  // namespace octet
