// Chooses the processors on which each thread of a call may run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "array.h"

namespace octet {

// A set of processors by number, in the kernel's format.
class Mask {
 public:
  // the maximum number of processors; the kernel's limit of 8192 is needed on few machines
  static constexpr int32_t kMost = 4096;
  void add(int32_t processor);
  void add(const Mask& other);
  bool has(int32_t processor) const;
  bool operator==(const Mask& other) const;
  int32_t first() const;  // returns -1 if the set is empty
  static constexpr size_t kBytes = kMost / 8;
  const unsigned long* words() const { return words_; }
  unsigned long* words() { return words_; }

 private:
  static constexpr int32_t kBits = 8 * sizeof(unsigned long);
  unsigned long words_[kMost / kBits];
};

// A physical core: its processors (hardware threads), its last-level cache, and its speed.
struct Core {
  Mask processors;
  int32_t cache;
  int32_t capacity;  // in the kernel's units, in which the fastest core has 1024
};

// Divides cores among the threads of a call: the cores of one cache or, if they are too few, of several. This keeps
// data local. The next layer reads the data that a layer writes, and transferring it between caches would take longer
// than computing it. A worker runs only on its share of the cores, and no other thread of the call runs there. If there
// are more cores than threads, a share consists of several cores, so that the kernel can avoid those that other
// processes use. The calling thread, thread 0, belongs to the program, so its mask is not changed. If it runs on a
// worker's share, that worker gets the caller's share instead.
class Placement {
 public:
  Placement(const Array<Core>& cores, int32_t most_threads) : cores_(cores), shares_(most_threads) {}
  bool is_made() const { return shares_.size() > 0; }  // false if memory ran out

  // Assigns shares for `threads` threads, the first of which runs on `processor`.
  void follow(int32_t processor, int32_t threads);
  const Mask& share(int32_t thread) const { return shares_[thread]; }

 private:
  void divide(int32_t processor, int32_t threads);
  int32_t deal(const Core& first, int32_t dealt);

  const Array<Core>& cores_;
  Array<Mask> shares_;
  int32_t threads_ = 0;
  Mask reach_{};  // the processors to which the caller may move without a new division
};

}  // namespace octet
