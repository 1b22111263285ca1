// The clock of all that is timed here.
#pragma once

#include <time.h>

#include <limits>

namespace octet {

inline double now_s() {  // of CLOCK_MONOTONIC
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline constexpr double kNever = std::numeric_limits<double>::infinity();  // by `now_s()`

}  // namespace octet
