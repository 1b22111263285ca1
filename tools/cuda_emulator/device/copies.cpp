// cp.async (PTX ISA, "cp.async", "cp.async.wait_group"): the copy happens only when the issuing thread waits for it, so
// that a kernel which does not wait, or reads too early, reads the old data.
#include "runtime.hpp"

namespace octet_emulated {

void copy_async(u32 destination, u64 source, u32 bytes, u32 source_bytes) {
  const char* from = reinterpret_cast<const char*>(source);
  if (source_bytes > bytes) fail(nullptr, "cp.async of %u bytes, %u of them from the source", bytes, source_bytes);
  if (destination % bytes || source % bytes)
    fail(nullptr, "cp.async of %u bytes from %p to %#x: not aligned to its size", bytes, static_cast<const void*>(from),
         destination);
  char* to = static_cast<char*>(shared_pointer(destination, bytes, Access::write));
  if (source_bytes) access(from, source_bytes, Access::read, 1, nullptr);
  mark_copy(to, bytes, true);
  current->uncommitted.push_back({to, from, bytes, source_bytes});
}

void commit_copies() {
  current->groups.push_back(std::move(current->uncommitted));
  current->uncommitted.clear();
}

static void finish(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    mark_copy(copy.destination, copy.bytes, false);
    access(copy.destination, copy.bytes, Access::write, 1, nullptr);
    if (copy.source_bytes) access(copy.source, copy.source_bytes, Access::read, 1, nullptr);
    memcpy(copy.destination, copy.source, copy.source_bytes);
    memset(copy.destination + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
  }
}

void finish_copies(Thread& thread, size_t groups_left) {
  while (thread.groups.size() > groups_left) {
    finish(thread.groups.front());
    thread.groups.erase(thread.groups.begin());
  }
}

void wait_copies(u32 pending, bool uncommitted_too) {
  if (uncommitted_too) commit_copies();
  finish_copies(*current, pending);
}

}  // namespace octet_emulated
