// What one connection may cost, and what its peer is told about it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame.h"

namespace octet::h2 {

/// So many at once, and so many a second in the long run.
struct Rate {
  double burst;
  double per_second;
};

/// Counts something that a peer may do now and then but not all the time.
class TokenBucket {
 public:
  explicit TokenBucket(Rate rate) : rate_(rate), tokens_(rate.burst) {}

  /// False: the peer has done it too often.
  bool take(Clock::time_point now) {
    const double elapsed_s = std::chrono::duration<double>(now - last_).count();
    tokens_ += elapsed_s > 0 ? elapsed_s * rate_.per_second : 0;
    if (tokens_ > rate_.burst) tokens_ = rate_.burst;
    last_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  Rate rate_;
  double tokens_;
  Clock::time_point last_;
};

struct Limits {
  uint32_t max_concurrent_streams = 128;
  /// What a stream may send before it is read: a tensor of a usual size never waits for a WINDOW_UPDATE.
  /// Not less than RFC 9113's 65,535, which the peer may use until it has read our SETTINGS.
  uint32_t stream_window_bytes = 1 << 20;
  uint32_t connection_window_bytes = 16 << 20;  // likewise not less than 65,535
  uint32_t max_frame_bytes = 1 << 20;           // between 16,384 and 16,777,215 (RFC 9113 section 4.2)
  uint32_t max_header_list_bytes = 16 << 10;    // as RFC 9113 section 6.5.2 counts: 32 bytes a field beside its text
  uint32_t max_header_block_bytes = 32 << 10;   // the same compressed, with its CONTINUATIONs
  uint32_t max_continuations = 32;              // of one block (CVE-2024-27316)
  size_t max_unsent_replies = 1000;             // a peer that asks and does not read (CVE-2019-9512, 9515)
  Rate resets = {1000, 100};                    // streams opened to be broken (CVE-2023-44487, CVE-2025-8671)
  Rate nuisances = {10000, 1000};               // frames that only cost: PING, SETTINGS, PRIORITY, empty DATA …
};

}  // namespace octet::h2
