// Chance, for a process that may open no file: `std::random_device` is /dev/urandom to some libraries.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <random>
#include <system_error>

namespace octet::plane {

// In [0, 1), evenly; nothing that nobody may guess.
inline double chance() {
  thread_local std::minstd_rand random = [] {
    unsigned seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) throw std::system_error(errno, std::generic_category(), "getrandom");
    return std::minstd_rand(seed);
  }();
  return std::uniform_real_distribution<double>()(random);
}

}  // namespace octet::plane
