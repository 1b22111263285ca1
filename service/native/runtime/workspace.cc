#include "workspace.h"

#include <pthread.h>
#include <stdlib.h>

#include <algorithm>

namespace octet {

namespace {

constexpr uint64_t kAlignmentBytes = 64;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr int kKept = 4;                                // The number of blocks that a thread keeps.
constexpr uint64_t kMostKeptBytes = uint64_t{1} << 24;  // Total size of these blocks.

// Precedes the memory of each block.
struct alignas(kAlignmentBytes) Header {
  uint64_t bytes;
};

// The freed blocks of this thread. It is a stack, because the last block is most likely to be in the cache.
struct Kept {
  Header* blocks[kKept];
  int count;
  uint64_t bytes;
};

__thread Kept kept;
pthread_key_t at_exit;
pthread_once_t is_key_made = PTHREAD_ONCE_INIT;

void remove(int index) {
  kept.bytes -= kept.blocks[index]->bytes;
  std::move(kept.blocks + index + 1, kept.blocks + kept.count, kept.blocks + index);
  --kept.count;
}

void drop_oldest() {
  Header* block = kept.blocks[0];
  remove(0);
  free(block);
}

void drop_all(void*) {
  while (kept.count > 0) drop_oldest();
}

void make_key() { pthread_key_create(&at_exit, drop_all); }

// Returns a block of at least this size that is less than twice as large, or null.
Header* take(uint64_t bytes) {
  for (int index = kept.count - 1; index >= 0; --index) {
    Header* block = kept.blocks[index];
    if (block->bytes < bytes || block->bytes / 2 > bytes) continue;
    remove(index);
    return block;
  }
  return nullptr;
}

void keep(Header* block) {
  if (block->bytes > kMostKeptBytes) return free(block);
  while (kept.count == kKept || (kept.count > 0 && kept.bytes + block->bytes > kMostKeptBytes)) drop_oldest();
  if (kept.count == 0) {  // this may be the first block that this thread frees
    pthread_once(&is_key_made, make_key);
    pthread_setspecific(at_exit, &kept);
  }
  kept.blocks[kept.count++] = block;
  kept.bytes += block->bytes;
}

}  // namespace

void* alloc_workspace(int, int, uint64_t bytes, int, int) {
  if (bytes > kMostBytes) return nullptr;
  bytes = std::max(kAlignmentBytes, (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes);
  Header* block = take(bytes);
  if (block == nullptr) {
    block = static_cast<Header*>(aligned_alloc(kAlignmentBytes, sizeof(Header) + bytes));
    if (block == nullptr) return nullptr;
    block->bytes = bytes;
  }
  return block + 1;
}

int free_workspace(int, int, void* pointer) {
  if (pointer != nullptr) keep(static_cast<Header*>(pointer) - 1);
  return 0;
}

}  // namespace octet
