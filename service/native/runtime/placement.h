// Which processors each thread of a call may run on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "array.h"

namespace octet {

// A set of processors, by number, as the kernel writes it.
class Mask {
 public:
  static constexpr int32_t kMost = 4096;  // processors; the kernel's own limit is 8192, of a few machines
  void add(int32_t processor);
  void add(const Mask& other);
  bool has(int32_t processor) const;
  bool operator==(const Mask& other) const;
  int32_t first() const;  // -1: it is empty
  static constexpr size_t kBytes = kMost / 8;
  const unsigned long* words() const { return words_; }
  unsigned long* words() { return words_; }

 private:
  static constexpr int32_t kBits = 8 * sizeof(unsigned long);
  unsigned long words_[kMost / kBits];
};

// The processors that share what computes, the last-level cache around which it lies, and how fast it is.
struct Core {
  Mask processors;
  int32_t cache;
  int32_t capacity;  // in the kernel's units, in which the fastest has 1024
};

// The cores around one cache, as many such as it takes, are divided among the threads of a call: what a layer writes the
// next one reads, and between caches that takes longer than to compute it. A worker stays on its share, and no other
// thread of the call runs there. Where there are more cores than threads a share is several, so that the kernel can
// evade other processes. The calling thread, which is 0, is not ours, and its mask is left alone: the worker whose share
// it runs on exchanges that for the caller's.
class Placement {
 public:
  Placement(const Array<Core>& cores, int32_t most_threads) : cores_(cores), shares_(most_threads) {}
  bool is_made() const { return shares_.size() > 0; }  // there was memory

  // Shares for `threads` threads, the first of which runs on `processor`.
  void follow(int32_t processor, int32_t threads);
  const Mask& share(int32_t thread) const { return shares_[thread]; }

 private:
  void divide(int32_t processor, int32_t threads);
  int32_t deal(const Core& first, int32_t dealt);

  const Array<Core>& cores_;
  Array<Mask> shares_;
  int32_t threads_ = 0;
  Mask reach_{};  // where the caller may run and need not be followed
};

}  // namespace octet
