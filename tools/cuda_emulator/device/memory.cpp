// The memory regions that device code may access and, in checked builds, the last accesses of each byte.
#include <algorithm>

#include "runtime.hpp"

namespace octet_emulated {

extern "C" char __ehdr_start __attribute__((visibility("hidden")));  // the first byte of this library
extern "C" char _end __attribute__((visibility("hidden")));          // the end of this library

namespace {

struct Touch {  // an access, with which other accesses may have to be ordered
  u32 epoch = 0, clock = 0;
  u32 thread = 0, block = 0;
  u32 place = 0;   // offset of the code in this library
  u32 serial = 0;  // the number of a write among the thread's writes
};

struct Reader : Touch {
  u32 next;
};

struct Byte {
  Touch write;
  Touch read;       // the last read, to find races with other blocks
  u32 readers = 0;  // index in `readers` of the first read in this epoch
  u32 readers_epoch = 0;
  bool atomic = false;     // true if the last write was atomic
  bool in_flight = false;  // true if a cp.async will write the byte
};

struct Region {
  const char* first;
  size_t bytes;
  std::string name;
  bool shared = false, read_only = false;
  std::vector<Byte> shadow;
  const char* last() const { return first + bytes; }
};

std::vector<Region> global;  // the permitted global memory; if empty, any is permitted
std::vector<Region> shared;  // the shared memory of this block, the dynamic part first
std::vector<Reader> readers;
u32 epoch, first_epoch;  // the current epoch of the launch; the first epoch of the block
struct Overwritten {     // a byte that another block wrote before, and this block wrote too
  const char* at;
  char before;
  Touch by;
};
std::vector<Overwritten> overwritten;

u32 offset_of(const void* code) { return code ? static_cast<const char*>(code) - &__ehdr_start : 0; }

bool inside(const Region& region, const char* at) { return at >= region.first && at < region.last(); }

Region* region_of(const char* at) {
  for (Region& region : shared)
    if (inside(region, at)) return &region;
  for (Region& region : global)
    if (inside(region, at)) return &region;
  return nullptr;
}

std::string placed(u32 offset) {
  char text[32] = "";
  if (offset) snprintf(text, sizeof text, " @%#x", offset);
  return text;
}

// Describes an address outside of all regions by its distance from the nearest region.
std::string nowhere(const char* at) {
  const Region* nearest = nullptr;
  size_t distance = 0;
  for (const auto* regions : {&shared, &global})
    for (const Region& region : *regions) {
      const size_t away = at < region.first ? region.first - at : at - region.last();
      if (!nearest || away < distance) nearest = &region, distance = away;
    }
  if (!nearest || distance > (1 << 20)) return "an address far from every operand";
  return std::to_string(distance) + (at < nearest->first ? " bytes before " : " bytes past the end of ") +
         nearest->name;
}

void refresh(Thread& thread) {
  if (thread.epoch == epoch) return;
  thread.epoch = epoch;
  thread.clock = 1;
  thread.known.assign(block.threads.size(), 0);
}

// Returns true if the access `before`, by this block, is ordered before the current access of the current thread.
bool ordered(const Touch& before) {
  return before.epoch != epoch || before.thread == current->number || current->known[before.thread] >= before.clock;
}

bool another_block(const Touch& before) { return before.epoch && before.epoch < first_epoch; }

[[noreturn]] void race(const Region& region, const char* at, const char* now, const Touch& before, const char* then,
                       const void* where) {
  const Thread& other = block.threads[before.thread % block.threads.size()];
  char whose[96] = "";
  if (before.block != block.number) snprintf(whose, sizeof whose, " of block number %u", before.block);
  fail(where, "%s byte %zu of %s that thread (%u, %u, %u)%s %s%s, with no barrier between: a race;", now,
       size_t(at - region.first), region.name.c_str(), other.index.x, other.index.y, other.index.z, whose, then,
       placed(before.place).c_str());
}

void touch(Region& region, const char* at, Access kind, const void* where) {
  Byte& byte = region.shadow[at - region.first];
  const Touch now{epoch, current->clock, current->number, block.number, offset_of(where)};
  const char* doing = kind == Access::read ? "reads" : kind == Access::write ? "writes" : "updates";
  if (byte.in_flight)
    fail(where, "%s byte %zu of %s while a cp.async to it is in flight", doing, size_t(at - region.first),
         region.name.c_str());
  const bool both_atomic = kind == Access::atomic && byte.atomic;
  if (!both_atomic && byte.write.epoch) {
    if (another_block(byte.write)) {
      if (kind != Access::write) race(region, at, doing, byte.write, "wrote", where);
      overwritten.push_back({at, *at, byte.write});
    } else if (!ordered(byte.write)) {
      race(region, at, doing, byte.write, byte.atomic ? "updates" : "wrote", where);
    }
  }
  if (kind == Access::read) {
    u32* next = &byte.readers;
    if (byte.readers_epoch != epoch) byte.readers = 0, byte.readers_epoch = epoch;
    for (; *next; next = &readers[*next].next)
      if (readers[*next].thread == current->number) {
        static_cast<Touch&>(readers[*next]) = now;
        return;
      }
    *next = readers.size();  // before push_back, because `next` may point into the vector
    readers.push_back({now, 0});
    byte.read = now;
    return;
  }
  if (another_block(byte.read)) race(region, at, doing, byte.read, "read", where);
  if (byte.readers_epoch == epoch)
    for (u32 each = byte.readers; each; each = readers[each].next)
      if (!ordered(readers[each])) race(region, at, doing, readers[each], "read", where);
  byte.write = now;
  byte.write.serial = ++current->writes;
  byte.atomic = kind == Access::atomic;
}

}  // namespace

std::string place_of(const void* code) { return placed(offset_of(code)).substr(1); }

void access(const void* address, size_t bytes, Access kind, size_t alignment, const void* where) {
  const char* at = static_cast<const char*>(address);
  if (!running || !current || (at >= current->stack && at < current->stack + kStackBytes)) return;
  const char* doing = kind == Access::read ? "reads" : kind == Access::write ? "writes" : "updates";
  if (reinterpret_cast<uintptr_t>(at) % alignment)
    fail(where, "%s %zu bytes at %p, which is not a multiple of %zu", doing, bytes, address, alignment);
  Region* region = region_of(at);
  if (!region) {
    const bool library =
        at >= &__ehdr_start && at < &_end && !(at >= dynamic_shared && at < dynamic_shared + kSharedBytes + 1024);
    if (library && kind == Access::read) return;  // constants, and variables of the runtime
    if (library) fail(where, "writes a global variable, which kernels must not have");
    if (global.empty()) return;
    fail(where, "%s %zu bytes at %s", doing, bytes, nowhere(at).c_str());
  }
  if (at + bytes > region->last())
    fail(where, "%s %zu bytes at byte %zu of %s, which has %zu", doing, bytes, size_t(at - region->first),
         region->name.c_str(), region->bytes);
  if (region->read_only && kind != Access::read) fail(where, "writes %s, a pointer to const", region->name.c_str());
  if (!octet_emulated_checked) return;
  refresh(*current);
  for (size_t byte = 0; byte < bytes; ++byte) touch(*region, at + byte, kind, where);
}

void begin_launch() {
  epoch = 0;
  for (Region& region : global) {
    region.read_only = false;
    if (octet_emulated_checked) region.shadow.assign(region.bytes, Byte());
  }
}

void forbid_writing(const void* operand) {
  for (Region& region : global)
    if (region.first == operand) region.read_only = true;
}

static void new_epoch() {
  ++epoch;
  readers.assign(1, Reader());  // index 0 stands for no reader
}

static void add_shared(char* first, size_t bytes, const char* name) {
  shared.push_back({first, bytes, name, true, false, {}});
  if (octet_emulated_checked) shared.back().shadow.assign(bytes, Byte());
}

void begin_block() {
  new_epoch();
  first_epoch = epoch;
  overwritten.clear();
  shared.clear();
  for (Thread& thread : block.threads) thread.epoch = 0;
  add_shared(dynamic_shared + octet_emulated_alignment, dynamic_bytes, "dynamic shared memory");
}

void end_block() {
  for (const Overwritten& each : overwritten)
    if (*each.at != each.before) {
      const Region& region = *region_of(each.at);
      return report("block (%u, %u, %u) writes byte %zu of %s, where block number %u wrote another value%s: a race",
                    block.index.x, block.index.y, block.index.z, size_t(each.at - region.first), region.name.c_str(),
                    each.by.block, placed(each.by.place).c_str());
    }
}

void join_clocks(const std::vector<Thread*>& threads, bool whole_block) {
  if (!octet_emulated_checked) return;
  if (whole_block) return new_epoch();
  std::vector<u32> known(block.threads.size(), 0);
  for (Thread* thread : threads) {
    refresh(*thread);
    for (size_t other = 0; other < known.size(); ++other) known[other] = std::max(known[other], thread->known[other]);
  }
  for (Thread* thread : threads) known[thread->number] = thread->clock;
  for (Thread* thread : threads) {
    thread->known = known;
    ++thread->clock;
  }
}

// Checks memory that the asynchronous proxy reads: its writer must have published it with a fence (PTX ISA,
// "fence.proxy").
void check_published(const void* address, size_t bytes) {
  if (!octet_emulated_checked) return;
  const char* at = static_cast<const char*>(address);
  const Region& region = *region_of(at);
  for (size_t byte = 0; byte < bytes; ++byte) {
    const Touch& write = region.shadow[at - region.first + byte].write;
    if (write.epoch && write.serial > block.threads[write.thread].published)
      fail(nullptr, "multiplies byte %zu of %s, which was written%s without a fence.proxy.async after the write",
           size_t(at - region.first) + byte, region.name.c_str(), placed(write.place).c_str());
  }
}

void mark_copy(const void* destination, size_t bytes, bool in_flight) {
  if (!octet_emulated_checked) return;
  const char* at = static_cast<const char*>(destination);
  Region& region = *region_of(at);
  for (size_t byte = 0; byte < bytes; ++byte) region.shadow[at - region.first + byte].in_flight = in_flight;
}

// 32-bit shared addresses are offsets from the dynamic part. Static variables are within 2 GiB of it, in this library.
u32 shared_address(const void* pointer) { return u32(static_cast<const char*>(pointer) - dynamic_shared); }

void* shared_pointer(u32 address, size_t bytes, Access kind) {
  char* at = dynamic_shared + int32_t(address);
  const Region* region = region_of(at);
  if (!region || !region->shared)
    fail(nullptr, "uses %#x as an address in shared memory: %s", address, nowhere(at).c_str());
  access(at, bytes, kind, 1, nullptr);
  return at;
}

void* shared_pointer(u32 address) { return dynamic_shared + int32_t(address); }

void shared_variable(void* variable, size_t bytes) {
  for (const Region& region : shared)
    if (region.first == variable) return;
  memset(variable, 0x5a, bytes);  // so that memory is not zero before the first write
  add_shared(static_cast<char*>(variable), bytes, "a shared variable");
}

void load(void* value, const void* from, size_t bytes, size_t alignment) {
  access(from, bytes, Access::read, alignment, nullptr);
  memcpy(value, from, bytes);
}

void store(void* to, const void* value, size_t bytes, size_t alignment) {
  access(to, bytes, Access::write, alignment, nullptr);
  memcpy(to, value, bytes);
}

u64 atomic(Atomic kind, bool is_signed, void* at, size_t bytes, u64 value, u64 expected) {
  access(at, bytes, Access::atomic, bytes, nullptr);
  u64 before = 0;
  memcpy(&before, at, bytes);
  const int spare = 64 - 8 * int(bytes);
  const bool less = is_signed ? int64_t(value << spare) < int64_t(before << spare) : value << spare < before << spare;
  u64 after = before;
  switch (kind) {
    case Atomic::add:
      after = before + value;
      break;
    case Atomic::exchange:
      after = value;
      break;
    case Atomic::compare:
      after = before << spare == expected << spare ? value : before;
      break;
    case Atomic::smallest:
      after = less ? value : before;
      break;
    case Atomic::largest:
      after = less ? before : value;
      break;
    case Atomic::both:
      after = before & value;
      break;
    case Atomic::either:
      after = before | value;
      break;
    case Atomic::exclusive:
      after = before ^ value;
      break;
  }
  memcpy(at, &after, bytes);
  return before;
}

float atomic_add(float* at, float value) {
  access(at, sizeof *at, Access::atomic, sizeof *at, nullptr);
  const float before = *at;
  *at = before + value;
  return before;
}

}  // namespace octet_emulated

// Adds global memory that kernels may access; until the first call they may access any. `name` is used in reports.
extern "C" __attribute__((visibility("default"))) void octet_emulated_region(const void* first, size_t bytes,
                                                                             const char* name) {
  octet_emulated::global.push_back({static_cast<const char*>(first), bytes, name, false, false, {}});
}

extern "C" __attribute__((visibility("default"))) void octet_emulated_forget_regions() {
  octet_emulated::global.clear();
}
