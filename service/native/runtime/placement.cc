#include "placement.h"

#include <cstring>
#include <utility>

namespace octet {

void Mask::add(int32_t processor) {
  if (processor >= 0 && processor < kMost) words_[processor / kBits] |= 1UL << (processor % kBits);
}

void Mask::add(const Mask& other) {
  for (int32_t word = 0; word < kMost / kBits; ++word) words_[word] |= other.words_[word];
}

bool Mask::has(int32_t processor) const {
  return processor >= 0 && processor < kMost && (words_[processor / kBits] >> (processor % kBits) & 1) != 0;
}

bool Mask::operator==(const Mask& other) const { return std::memcmp(words_, other.words_, kBytes) == 0; }

int32_t Mask::first() const {
  for (int32_t word = 0; word < kMost / kBits; ++word) {
    if (words_[word] != 0) return word * kBits + __builtin_ctzl(words_[word]);
  }
  return -1;
}

void Placement::follow(int32_t processor, int32_t threads) {
  if (threads != threads_ || !reach_.has(processor)) divide(processor, threads);
  for (int32_t thread = 1; thread < threads && !shares_[0].has(processor); ++thread) {
    if (shares_[thread].has(processor)) std::swap(shares_[0], shares_[thread]);
  }
}

void Placement::divide(int32_t processor, int32_t threads) {
  threads_ = threads;
  for (int32_t thread = 0; thread < threads; ++thread) shares_[thread] = {};
  reach_ = {};
  reach_.add(processor);
  const Core* here = nullptr;
  for (int32_t each = 0; each < cores_.size() && here == nullptr; ++each) {
    if (cores_[each].processors.has(processor)) here = &cores_[each];
  }
  int32_t dealt = here == nullptr ? 0 : deal(*here, 0);
  for (int32_t each = 0; each < cores_.size() && dealt < threads; ++each) {
    const Core& core = cores_[each];
    bool is_first = here == nullptr || core.cache != here->cache;  // true for the first core of a cache
    for (int32_t before = 0; before < each && is_first; ++before) is_first = cores_[before].cache != core.cache;
    if (is_first) dealt = deal(core, dealt);
  }
}

// Assigns the cores of the cache of `first` to the threads in turn. Returns how many have been assigned so far.
int32_t Placement::deal(const Core& first, int32_t dealt) {
  for (int32_t each = 0; each < cores_.size(); ++each) {
    const Core& core = cores_[each];
    if (core.cache != first.cache) continue;
    shares_[dealt++ % threads_].add(core.processors);
    reach_.add(core.processors);
  }
  return dealt;
}

}  // namespace octet
