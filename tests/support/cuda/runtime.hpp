// One launch at a time: the threads of a block are fibers of one CPU thread, its blocks run one after the other.
//
//   schedule.cpp  blocks, fibers, barriers of a block
//   warp.cpp      what the lanes of a warp do together: shuffles, votes, mma, ldmatrix
//   group.cpp     wgmma: products whose operands are held until they are waited for
//   copies.cpp    cp.async: nothing is written before the wait
//   memory.cpp    regions, and who touched each byte since when (of builds that see every access)
//   sanitizers.cpp  what the instrumentation of gcc calls: -fsanitize=thread sees accesses, =undefined findings
#pragma once
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "interface.hpp"

namespace octet_emulated {

constexpr u32 kLanes = 32;
constexpr u32 kBarriers = 16;
constexpr u32 kMostThreads = 1024;
constexpr size_t kStackBytes = 128 << 10;   // of a fiber
constexpr size_t kSharedBytes = 227 << 10;  // what one block may have, of any capability

enum class State { ready, waiting, exited };

struct Copy {  // cp.async, issued and not yet done
  char* destination;
  const char* source;
  u32 bytes, source_bytes;
};

struct Held {  // 16 bytes of an operand of wgmma, as they were when it was issued
  const char* at;
  char bytes[16];
};

struct Thread {
  void* stack_pointer;
  char* stack;  // its lowest byte
  State state;
  uint3 index;
  u32 number;           // in the block
  const char* awaited;  // what it waits at
  int line;
  // A warp's operation that this lane has reached.
  const void* operation;
  u32 mask;
  void* arguments;
  std::vector<std::vector<Copy>> groups;  // committed
  std::vector<Copy> uncommitted;
  std::vector<std::vector<Held>> products;  // committed sets, of the first lane of a warp
  std::vector<Held> held;
  u32 writes, published;  // to shared memory: how many, and how many of them the asynchronous proxy sees
  // What orders accesses between two barriers of the whole block: its own clock, and what it knows of others'
  // (memory.cpp).
  u32 epoch, clock;
  std::vector<u32> known;
};

struct Barrier {
  u32 expected = 0;
  int line = 0;
  u32 votes = 0, result = 0;
  std::vector<Thread*> arrived;
};

struct Block {
  uint3 index;
  u32 number = 0;  // in the launch
  std::vector<Thread> threads;
  std::vector<Thread*> ready;
  Barrier barriers[kBarriers];
};

extern Block block;
extern Thread* current;
extern u32 dynamic_bytes;  // of this launch
extern bool running;       // a kernel, so that accesses mean something

// Ends the launch: what the current thread did, printf-like. `where` is an address of its code, or null.
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const void* where, const char* text, ...);
__attribute__((format(printf, 1, 2))) void report(const char* text, ...);  // likewise, of no thread
std::string place_of(const void* code);  // "@0x...": an offset in this library, which the caller turns to a line
void suspend();                          // back to the scheduler, until someone makes this thread ready
void wake(Thread& thread);               // which waits
void join_clocks(const std::vector<Thread*>& threads, bool whole_block);

// Warp: `perform` runs once, when all lanes of the mask have come to the same operation.
using Perform = void (*)(Thread* const* lanes, u32 mask);
void together(Perform perform, const void* operation, const char* name, u32 mask, void* arguments, int line);
constexpr u32 kWholeWarp = 0xffffffffu;

enum class Access { read, write, atomic };

// Every access of device code, before it is made. `alignment`: what the instruction demands.
void access(const void* at, size_t bytes, Access kind, size_t alignment, const void* where);
void begin_launch();
void forbid_writing(const void* operand);
void begin_block();
void end_block();
void mark_copy(const void* destination, size_t bytes, bool in_flight);
void check_published(const void* at, size_t bytes);
void finish_copies(Thread& thread, size_t groups_left);
void* shared_pointer(u32 address, size_t bytes, Access kind);  // checked as an access, if only for its bounds

}  // namespace octet_emulated

// Of the translated kernel.
extern "C" const bool octet_emulated_checked;        // it was compiled with instrumentation
extern "C" const uint32_t octet_emulated_alignment;  // what its dynamic shared memory asks for, and not more
