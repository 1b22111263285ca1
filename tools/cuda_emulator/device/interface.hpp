// The functions that translated kernels call and the runtime defines: those that involve other threads or check memory
// accesses.
#pragma once

using size_t = decltype(sizeof 0);

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// The scheduler sets these whenever it resumes a thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace octet_emulated {
using u32 = unsigned;
using u64 = unsigned long long;

enum class Vote : int { all, any, ballot };
enum class Shuffle : int { index, up, down, exclusive };
enum class Reduce : int { add, smallest, largest, both, either, exclusive };
enum class Atomic : int { add, exchange, compare, smallest, largest, both, either, exclusive };

void block_barrier(u32 barrier, u32 threads, int line);
u32 block_vote(Vote kind, bool predicate, int line);  // for `ballot`, the number of true predicates
void warp_barrier(u32 mask, int line);
u32 shuffle(Shuffle kind, u32 mask, u32 value, u32 other, u32 width, int line);
u32 vote(Vote kind, u32 mask, bool predicate, int line);
u32 reduce(Reduce kind, bool is_signed, u32 mask, u32 value, int line);

void mma(u32 rows, u32 depth, bool a_signed, bool b_signed, u32* d, const u32* a, const u32* b, const u32* c);
void load_matrices(u32 count, bool transposed, u32* registers, u32 address);
void copy_async(u32 destination, u64 source, u32 bytes, u32 source_bytes);
void multiply_group(u32 columns, u32* d, const u32* c, u64 a, u64 b, bool adds);
void commit_products();
void wait_products(u32 pending);
void publish();
void commit_copies();
void wait_copies(u32 pending, bool uncommitted_too);

u32 shared_address(const void* pointer);
void* shared_pointer(u32 address);  // does not check the address
void shared_variable(void* variable, size_t bytes);
void load(void* value, const void* from, size_t bytes, size_t alignment);
void store(void* to, const void* value, size_t bytes, size_t alignment);
u64 atomic(Atomic kind, bool is_signed, void* at, size_t bytes, u64 value, u64 expected);
float atomic_add(float* at, float value);

extern char dynamic_shared[];

struct Kernel {  // an entry of the table at the end of a translated source
  const char* name;
  void (*call)(void* const* operands);
  u32 most_threads;     // __launch_bounds__
  const bool* written;  // For each operand: true unless it is a pointer to const.
  u32 operands;
};
}  // namespace octet_emulated
