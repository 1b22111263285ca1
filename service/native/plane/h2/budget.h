// Who counts what a peer does that costs more than it asks for.
#pragma once

#include "h2/frame.h"

namespace octet::h2 {

class Budget {
 public:
  /// A stream was broken off, by the peer or for what it did (CVE-2023-44487, CVE-2025-8671). False: too often.
  virtual bool may_reset(Clock::time_point now) = 0;
  /// A frame came that only costs: PING, SETTINGS, PRIORITY, empty DATA, WINDOW_UPDATE …; or a stream was refused.
  virtual bool may_disturb(Clock::time_point now) = 0;

 protected:
  ~Budget() = default;
};

}  // namespace octet::h2
