// Random numbers for a process that may not open files. Some standard libraries open /dev/urandom for
// `std::random_device`; this uses the system call getrandom.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <random>
#include <system_error>

namespace octet::plane {

// Returns a random number, uniformly distributed in [0, 1). It is predictable: do not use it for secrets.
inline double chance() {
  thread_local std::minstd_rand random = [] {
    unsigned seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
      throw std::system_error(errno, std::generic_category(), "getrandom");
    return std::minstd_rand(seed);
  }();
  return std::uniform_real_distribution<double>()(random);
}

}  // namespace octet::plane
