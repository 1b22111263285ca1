// Runs one launch at a time. Blocks run one after another; the threads of a block are fibers of one CPU thread.
//
//   schedule.cpp    blocks, fibers, barriers of a block
//   warp.cpp        operations of all lanes of a warp: shuffles, votes, mma, ldmatrix
//   group.cpp       wgmma: products whose operands must not change until the wait
//   copies.cpp      cp.async: copies that happen at the wait
//   memory.cpp      memory regions and, in checked builds, the last accesses of each byte
//   sanitizers.cpp  the functions that gcc's instrumentation calls for accesses and findings
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
constexpr size_t kStackBytes = 128 << 10;   // The stack of one fiber.
constexpr size_t kSharedBytes = 227 << 10;  // The maximum of one block on any GPU.

enum class State { ready, waiting, exited };

struct Copy {  // a cp.async that was issued but not done yet
  char* destination;
  const char* source;
  u32 bytes, source_bytes;
};

struct Held {  // a copy of 16 bytes of a wgmma operand at the time when it was issued
  const char* at;
  char bytes[16];
};

struct Thread {
  void* stack_pointer;
  char* stack;  // the lowest byte of its stack
  State state;
  uint3 index;
  u32 number;           // The number of the thread in its block.
  const char* awaited;  // The operation at which the thread waits.
  int line;
  // The warp operation that this lane has reached.
  const void* operation;
  u32 mask;
  void* arguments;
  std::vector<std::vector<Copy>> groups;  // committed groups of copies
  std::vector<Copy> uncommitted;
  std::vector<std::vector<Held>> products;  // committed sets of operands, in the first lane of a warp
  std::vector<Held> held;
  u32 writes, published;  // number of writes to shared memory, and of those visible to the asynchronous proxy
  // The vector clock that orders accesses between two barriers of the whole block: the thread's own clock, and the
  // clocks of other threads as far as it is synchronized with them (memory.cpp).
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
  u32 number = 0;  // the number of the block in the launch
  std::vector<Thread> threads;
  std::vector<Thread*> ready;
  Barrier barriers[kBarriers];
};

extern Block block;
extern Thread* current;
extern u32 dynamic_bytes;  // The dynamic shared memory of this launch.
extern bool running;       // True while a kernel runs, so that accesses are checked.

// Ends the launch with a printf-like message about the current thread. `where` is an address of its code, or null.
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const void* where, const char* text, ...);
__attribute__((format(printf, 1, 2))) void report(const char* text, ...);  // The same without a thread.
std::string place_of(const void* code);  // "@0x...": an offset in this library, which the caller converts to a line.
void suspend();                          // Returns to the scheduler until another thread wakes this one.
void wake(Thread& thread);               // Makes a waiting thread ready.
void join_clocks(const std::vector<Thread*>& threads, bool whole_block);

// Warp: `perform` runs once, when all lanes of the mask have arrived at the same operation.
using Perform = void (*)(Thread* const* lanes, u32 mask);
void together(Perform perform, const void* operation, const char* name, u32 mask, void* arguments, int line);
constexpr u32 kWholeWarp = 0xffffffffu;

enum class Access { read, write, atomic };

// Checks an access of device code before it is made. `alignment` is the alignment that the instruction requires.
void access(const void* at, size_t bytes, Access kind, size_t alignment, const void* where);
void begin_launch();
void forbid_writing(const void* operand);
void begin_block();
void end_block();
void mark_copy(const void* destination, size_t bytes, bool in_flight);
void check_published(const void* at, size_t bytes);
void finish_copies(Thread& thread, size_t groups_left);
void* shared_pointer(u32 address, size_t bytes, Access kind);  // checked at least for its bounds

}  // namespace octet_emulated

// Defined by the translated kernel.
extern "C" const bool octet_emulated_checked;        // True if the kernel was compiled with instrumentation.
extern "C" const uint32_t octet_emulated_alignment;  // The exact alignment of the kernel's dynamic shared memory.
