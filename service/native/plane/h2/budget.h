// Limits on what a peer does that costs the server more than the peer: too many resets or useless frames end its
// connection.
#pragma once

#include "h2/frame.h"

namespace octet::h2 {

class Budget {
 public:
  /// Counts a stream that was reset, by the peer or because of an error of the peer (CVE-2023-44487, CVE-2025-8671).
  /// Returns false if there were too many.
  virtual bool may_reset(Clock::time_point now) = 0;
  /// Counts a frame that only causes work, such as PING, SETTINGS, PRIORITY, empty DATA or WINDOW_UPDATE, or a stream
  /// that was refused. Returns false if there were too many.
  virtual bool may_disturb(Clock::time_point now) = 0;

 protected:
  ~Budget() = default;
};

}  // namespace octet::h2
