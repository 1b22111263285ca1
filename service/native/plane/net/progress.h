// Whether what is awaited of a peer keeps coming, or keeps being taken.
#pragma once

#include <cstdint>

namespace octet {

struct MinimumRate {
  double period_s = 60;  // in which there must be `bytes`
  uint64_t bytes = 1;
};

class Progress {
 public:
  explicit Progress(double now_s, const MinimumRate& rate) : due_s_(now_s + rate.period_s) {}

  // To be asked now and then. `total_bytes`: of all time. False: it was too slow.
  bool is_kept(bool is_awaited, uint64_t total_bytes, double now_s, const MinimumRate& rate) {
    if (is_awaited && now_s < due_s_) return true;
    if (is_awaited && total_bytes - seen_bytes_ < rate.bytes) return false;
    seen_bytes_ = total_bytes;
    due_s_ = now_s + rate.period_s;
    return true;
  }

 private:
  double due_s_;
  uint64_t seen_bytes_ = 0;  // when the period began
};

}  // namespace octet
