// Limits on actions of a peer that cost the server more than the peer. Too many resets or useless frames end the peer's
// connection.
#pragma once

#include "h2/frame.h"

namespace octet::h2 {

class Budget {
 public:
  /// Counts a stream that was reset by the peer or because of an error of the peer (CVE-2023-44487, CVE-2025-8671).
  /// Returns false if the number exceeds the limit.
  virtual bool may_reset(Clock::time_point now) = 0;
  /// Counts a frame that only causes work, such as PING, SETTINGS, PRIORITY, empty DATA or WINDOW_UPDATE, or a stream
  /// that was refused. Returns false if the number exceeds the limit.
  virtual bool may_disturb(Clock::time_point now) = 0;

 protected:
  ~Budget() = default;
};

}  // namespace octet::h2
