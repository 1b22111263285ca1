// Allocations and copies.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "tools/cuda_emulator/driver/state.h"

using namespace octet::emulated;

namespace {

constexpr uint8_t kPoison = 0xCB, kCanary = 0xA5;
constexpr size_t kPage = 4096;

void check_device(const char* what, Address at, size_t bytes) {
  if (!holds(*current.back(), at, bytes)) misuse("%s: %zu bytes at %#lx are not in the GPU's memory", what, bytes, at);
}

void check_pinned(const char* what, const void* memory, size_t bytes) {
  auto at = reinterpret_cast<uintptr_t>(memory);
  for (const auto& [begin, size] : current.back()->pinned) {
    if (at >= begin && at - begin <= size && bytes <= size - (at - begin)) return;
  }
  misuse("%s: %zu bytes at %p are not pinned memory", what, bytes, memory);
}

}  // namespace

API cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  USABLE("cuMemGetInfo");
  for (Card& card : cards) {
    if (&card.context == current.back())
      *total = card.memory_bytes, *free_bytes = card.memory_bytes - card.context.used;
  }
  return kSuccess;
}

API cuMemAlloc_v2(Address* address, size_t bytes) {
  USABLE("cuMemAlloc");
  size_t free_bytes = 0, total = 0;
  cuMemGetInfo_v2(&free_bytes, &total);
  if (bytes == 0) return kInvalidValue;
  if (bytes > free_bytes) return kOutOfMemory;
  size_t inner = (bytes + kPage - 1) / kPage * kPage, mapped = inner + 2 * kPage;
  void* outer = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (outer == MAP_FAILED) return kOutOfMemory;
  uint8_t* begin = static_cast<uint8_t*>(outer) + kPage;
  mprotect(begin, inner, PROT_READ | PROT_WRITE);
  memset(begin, kPoison, bytes);
  memset(begin + bytes, kCanary, inner - bytes);
  *address = reinterpret_cast<Address>(begin);
  current.back()->memory[*address] = {bytes, mapped};
  current.back()->used += bytes;
  return kSuccess;
}

API cuMemFree_v2(Address address) {
  USABLE("cuMemFree");
  auto found = current.back()->memory.find(address);
  if (found == current.back()->memory.end()) misuse("cuMemFree: nothing was allocated at %#lx", address);
  for (Stream* stream : current.back()->streams) drain(*stream, nullptr);  // the driver also waits for all work
  auto begin = reinterpret_cast<uint8_t*>(address);
  size_t inner = found->second.mapped - 2 * kPage;
  for (size_t at = found->second.bytes; at < inner; ++at) {
    if (begin[at] != kCanary)
      misuse("byte %zu was written, after the end of an allocation of %zu bytes", at, found->second.bytes);
  }
  munmap(begin - kPage, found->second.mapped);
  current.back()->used -= found->second.bytes;
  current.back()->memory.erase(found);
  return kSuccess;
}

API cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  USABLE("cuMemHostAlloc");
  if (posix_memalign(memory, kPage, std::max<size_t>(bytes, 1)) != 0) return kOutOfMemory;
  memset(*memory, kPoison, bytes);
  current.back()->pinned[reinterpret_cast<uintptr_t>(*memory)] = bytes;
  return kSuccess;
}

API cuMemFreeHost(void* memory) {
  USABLE("cuMemFreeHost");
  if (current.back()->pinned.erase(reinterpret_cast<uintptr_t>(memory)) == 0)
    misuse("cuMemFreeHost: %p is not pinned", memory);
  free(memory);
  return kSuccess;
}

API cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  USABLE("cuMemcpyHtoD");
  check_device("cuMemcpyHtoD", to, bytes);
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}

API cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
  USABLE("cuMemcpyHtoDAsync");
  check_device("cuMemcpyHtoDAsync", to, bytes);
  check_pinned("cuMemcpyHtoDAsync", from, bytes);
  return enqueue(of_now<Stream>(stream, "cuMemcpyHtoDAsync"), {[=] {
                   memcpy(reinterpret_cast<void*>(to), from, bytes);
                   return kSuccess;
                 }});
}

API cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
  USABLE("cuMemcpyDtoHAsync");
  check_device("cuMemcpyDtoHAsync", from, bytes);
  check_pinned("cuMemcpyDtoHAsync", to, bytes);
  return enqueue(of_now<Stream>(stream, "cuMemcpyDtoHAsync"), {[=] {
                   memcpy(to, reinterpret_cast<const void*>(from), bytes);
                   return kSuccess;
                 }});
}

API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
  USABLE("cuMemcpyDtoDAsync");
  check_device("cuMemcpyDtoDAsync", from, bytes);
  check_device("cuMemcpyDtoDAsync", to, bytes);
  if (to < from + bytes && from < to + bytes) misuse("cuMemcpyDtoDAsync: source and destination overlap");
  return enqueue(of_now<Stream>(stream, "cuMemcpyDtoDAsync"), {[=] {
                   memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
                   return kSuccess;
                 }});
}
