// Functions for threads that wait for each other: clock, spinning, and futexes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace octet {

// Two cache lines, because processors fetch lines in pairs. With one line, neighbors would still slow each other down.
inline constexpr size_t kApartBytes = 128;

inline int64_t nanoseconds_of(clockid_t clock) {
  timespec now;
  if (clock_gettime(clock, &now) != 0) return -1;
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

inline int64_t now_ns() { return nanoseconds_of(CLOCK_MONOTONIC); }

// Tells the processor that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` has no effect on cores with one thread
#elif defined(__riscv)
  asm volatile(".insn i 0x0F, 0, x0, x0, 0x010" ::: "memory");  // `pause`, a hint that processors without it ignore
#endif
}

// Polls `is_done` until it returns true, for at most about `ns` nanoseconds. Returns its last result.
template <typename Condition>
bool spin(Condition is_done, int64_t ns) {
  constexpr int kLooks = 16;  // the number of polls per reading of the clock, which takes half as long as a poll
  int64_t until = now_ns() + ns;
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (is_done()) return true;
      relax();
    }
  } while (now_ns() < until);
  return is_done();
}

// Sleeps while `word` equals `value`; may wake up spuriously.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace octet
