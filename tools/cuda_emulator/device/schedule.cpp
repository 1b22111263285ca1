// Runs blocks one after another. The threads of a block are fibers, whose order depends on a seed.
#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "runtime.hpp"

#ifndef __x86_64__
#error "the switch between fibers is written for x86-64"
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace octet_emulated {

alignas(1024) char dynamic_shared[kSharedBytes + 1024];  // the kernel's part begins at its declared alignment
Block block;
Thread* current;
u32 dynamic_bytes;
bool running;

namespace {

constexpr size_t kGuardBytes = 4096;

void* scheduler_stack;
char* stacks;
u64 random_state;  // 0 for the natural order
std::string problem;
bool failed;
void (*kernel)(void* const*);
void* const* kernel_operands;
std::mutex one_launch;

// Switches to another stack: pushes the callee-saved registers, saves the stack pointer in *from, continues at `to`.
extern "C" void octet_emulated_switch(void** from, void* to);
asm(R"(
.text
.type octet_emulated_switch, @function
.hidden octet_emulated_switch
.globl octet_emulated_switch
octet_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size octet_emulated_switch, .-octet_emulated_switch
)");

// The stacks of one launch. Below each fiber's stack is an inaccessible page.
class Stacks {
 public:
  explicit Stacks(u32 count) : bytes_(count * (kGuardBytes + kStackBytes)) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const room = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (room == MAP_FAILED) abort();
    stacks = static_cast<char*>(room);
    for (u32 each = 0; each < count; ++each)
      mprotect(stacks + each * (kGuardBytes + kStackBytes), kGuardBytes, PROT_NONE);
  }
  ~Stacks() { munmap(stacks, bytes_); }

 private:
  size_t bytes_;
};

u64 next_random() {  // xorshift64
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

std::string named(const Thread& thread) {
  char text[64];
  snprintf(text, sizeof text, "thread (%u, %u, %u)", thread.index.x, thread.index.y, thread.index.z);
  return text;
}

void run_thread() {
  kernel(kernel_operands);
  current->state = State::exited;
  finish_copies(*current, 0);
  wait_products(0);
  suspend();
}

void prepare(Thread& thread, u32 number) {
  thread.number = number;
  thread.index = {number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y};
  thread.stack = stacks + number * (kStackBytes + kGuardBytes) + kGuardBytes;
  thread.state = State::ready;
  thread.operation = nullptr;
  thread.groups.clear();
  thread.uncommitted.clear();
  thread.products.clear();
  thread.held.clear();
  thread.writes = thread.published = 0;
  void** top = reinterpret_cast<void**>(thread.stack + kStackBytes);
  top[-2] = reinterpret_cast<void*>(run_thread);  // return address of the switch; six registers are below
  thread.stack_pointer = top - 8;
}

// Describes a deadlock: the barriers and operations at which threads wait, each with one of these threads as an
// example.
std::string standstill() {
  std::string text = "deadlock: ";
  std::vector<std::pair<std::string, std::pair<const Thread*, u32>>> groups;
  for (const Thread& thread : block.threads) {
    std::string doing = "exited";
    if (thread.state != State::exited) {
      doing = std::string("waits at ") + thread.awaited;
      if (thread.line) doing += " of line " + std::to_string(thread.line);
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == doing; });
    if (group == groups.end()) group = groups.insert(group, {doing, {&thread, 0}});
    ++group->second.second;
  }
  for (const auto& group : groups) {
    if (&group != &groups[0]) text += "; ";
    text += named(*group.second.first);
    if (group.second.second > 1) text += " and " + std::to_string(group.second.second - 1) + " more";
    text += " " + group.first;
  }
  return text;
}

void run_block() {
  for (Barrier& barrier : block.barriers) barrier = Barrier();
  block.ready.clear();
  for (u32 number = 0; number < block.threads.size(); ++number) {
    prepare(block.threads[number], number);
    block.ready.push_back(&block.threads[number]);
  }
  memset(dynamic_shared, 0xa5 ^ int(random_state), sizeof dynamic_shared);  // so that unwritten memory is not zero
  begin_block();
  size_t first = 0;  // index of the next thread in `ready`
  while (first < block.ready.size() && !failed) {
    if (random_state) std::swap(block.ready[first], block.ready[first + next_random() % (block.ready.size() - first)]);
    current = block.ready[first++];
    if (first > 4 * kMostThreads) {
      block.ready.erase(block.ready.begin(), block.ready.begin() + first);
      first = 0;
    }
    threadIdx = current->index;
    octet_emulated_switch(&scheduler_stack, current->stack_pointer);
  }
  current = nullptr;
  if (failed) return;
  const bool all_exited = std::all_of(block.threads.begin(), block.threads.end(),
                                      [](const Thread& thread) { return thread.state == State::exited; });
  if (!all_exited) {
    problem = standstill();
    failed = true;
    return;
  }
  end_block();
}

void run_grid() {
  std::vector<u32> order(gridDim.x * gridDim.y * gridDim.z);
  for (u32 number = 0; number < order.size(); ++number) order[number] = number;
  if (random_state)
    for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[next_random() % left]);
  for (u32 number : order) {
    block.number = number;
    block.index = {number % gridDim.x, number / gridDim.x % gridDim.y, number / gridDim.x / gridDim.y};
    blockIdx = block.index;
    run_block();
    if (failed) return;
  }
}

std::string refuse(const uint32_t* grid, const uint32_t* threads, uint32_t shared_bytes, u32 most_threads) {
  const u64 count = u64(threads[0]) * threads[1] * threads[2];
  if (!count || count > kMostThreads || threads[2] > 64) return "more or fewer threads than a block can have";
  if (count > most_threads) return "more threads than __launch_bounds__ allows";
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535)
    return "more or fewer blocks than a grid can have";
  return shared_bytes > kSharedBytes ? "more shared memory than a block can have" : "";
}

}  // namespace

void suspend() { octet_emulated_switch(&current->stack_pointer, scheduler_stack); }

void wake(Thread& thread) {
  thread.state = State::ready;
  block.ready.push_back(&thread);
}

static void say(const void* where, const char* text, va_list rest) {
  char message[512];
  vsnprintf(message, sizeof message, text, rest);
  problem = message;
  if (current) {
    char place[96];
    snprintf(place, sizeof place, " of block (%u, %u, %u) ", block.index.x, block.index.y, block.index.z);
    problem = named(*current) + place + message;
  }
  if (where) problem += " " + place_of(where);
  failed = true;
}

void report(const char* text, ...) {
  va_list rest;
  va_start(rest, text);
  say(nullptr, text, rest);
  va_end(rest);
}

void fail(const void* where, const char* text, ...) {
  va_list rest;
  va_start(rest, text);
  say(where, text, rest);
  va_end(rest);
  void* abandoned;
  octet_emulated_switch(&abandoned, scheduler_stack);
  __builtin_unreachable();
}

// Arrives at the barrier of `bar.sync`, which opens when `threads` threads of the block (0: all) have arrived.
static Barrier& arrive(u32 number, u32 threads, int line, const char* name) {
  if (number >= kBarriers) fail(nullptr, "waits at barrier %u, but a block has only %u barriers", number, kBarriers);
  const u32 all = block.threads.size(), expected = threads ? threads : all;
  if (expected % kLanes && expected != all)
    fail(nullptr, "waits at a barrier of %u threads, which is not a multiple of the warp size", expected);
  Barrier& barrier = block.barriers[number];
  if (barrier.arrived.empty()) {
    barrier.expected = expected;
    barrier.line = line;
    barrier.votes = 0;
  }
  // At a barrier with an explicit number of threads, producers and consumers arrive from different lines.
  if (barrier.expected != expected || (!threads && barrier.line != line))
    fail(nullptr,
         "waits at %s of line %d (%u threads), where %s waits at one of line %d (%u threads): barrier divergence", name,
         line, expected, named(*barrier.arrived[0]).c_str(), barrier.line, barrier.expected);
  barrier.arrived.push_back(current);
  return barrier;
}

static void pass(Barrier& barrier, int line, const char* name) {
  if (barrier.arrived.size() < barrier.expected) {
    current->state = State::waiting;
    current->awaited = name;
    current->line = line;
    return suspend();
  }
  join_clocks(barrier.arrived, barrier.expected == block.threads.size());
  barrier.result = barrier.votes;
  for (Thread* thread : barrier.arrived)
    if (thread != current) wake(*thread);
  barrier.arrived.clear();
}

void block_barrier(u32 number, u32 threads, int line) {
  pass(arrive(number, threads, line, "a barrier"), line, "a barrier");
}

u32 block_vote(Vote kind, bool predicate, int line) {
  Barrier& barrier = arrive(0, 0, line, "a barrier with a vote");
  barrier.votes += predicate;
  pass(barrier, line, "a barrier with a vote");
  // The next barrier needs every thread, so it cannot change the result before all threads have read it.
  if (kind == Vote::ballot) return barrier.result;
  return kind == Vote::all ? barrier.result == block.threads.size() : barrier.result > 0;
}

}  // namespace octet_emulated

extern "C" const octet_emulated::Kernel octet_emulated_kernels[];
extern "C" const uint32_t octet_emulated_kernel_count;

#define OCTET_EXPORT extern "C" __attribute__((visibility("default")))

// Sets the seed of the order of blocks and threads; 0 for the order of their numbers.
OCTET_EXPORT void octet_emulated_schedule(uint64_t seed) { octet_emulated::random_state = seed; }

// Runs one launch. `operands` are the kernel's pointers, in order. Returns 0, or 1 with a message in `problem`.
OCTET_EXPORT int32_t octet_emulated_launch(const char* symbol, const uint32_t grid[3], const uint32_t threads[3],
                                           uint32_t shared_bytes, void* const* operands, char* said,
                                           size_t said_bytes) {
  using namespace octet_emulated;
  const std::lock_guard<std::mutex> alone(one_launch);
  const Kernel* chosen = nullptr;
  for (u32 each = 0; each < octet_emulated_kernel_count; ++each)
    if (!strcmp(octet_emulated_kernels[each].name, symbol)) chosen = &octet_emulated_kernels[each];
  failed = false;
  problem = chosen ? refuse(grid, threads, shared_bytes, chosen->most_threads) : "no such kernel";
  if (problem.empty()) {
    const Stacks held(threads[0] * threads[1] * threads[2]);
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {threads[0], threads[1], threads[2]};
    block.threads.resize(size_t(threads[0]) * threads[1] * threads[2]);
    kernel = chosen->call;
    kernel_operands = operands;
    dynamic_bytes = shared_bytes;
    begin_launch();
    for (u32 each = 0; each < chosen->operands; ++each)
      if (!chosen->written[each]) forbid_writing(operands[each]);
    running = true;
    run_grid();
    running = false;
  }
  if (said && said_bytes) snprintf(said, said_bytes, "%s", problem.c_str());
  return problem.empty() ? 0 : 1;
}
