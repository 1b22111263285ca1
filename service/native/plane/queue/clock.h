// The clock for all times in the data plane.
#pragma once

#include <time.h>

#include <limits>

namespace octet {

inline double now_s() {  // CLOCK_MONOTONIC in seconds
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// a time on the clock of `now_s()` that never comes
inline constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace octet
