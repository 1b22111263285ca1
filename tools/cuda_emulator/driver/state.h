// The state of the emulated driver: GPUs, their contexts, and the objects of these contexts.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace octet::emulated {

using Result = int;
using Address = uint64_t;
enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoBinary = 209,
  kFileNotFound = 301,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
};
constexpr size_t kSharedBytesOfAll = 48 << 10;

using LaunchFunction = int32_t (*)(const char*, const uint32_t*, const uint32_t*, uint32_t, void* const*, char*,
                                   size_t);

struct Allocation {
  size_t bytes, mapped;
};

struct Stream;

struct Context {
  std::set<Stream*> streams;
  Result failed = kSuccess;  // the first error that makes all later calls fail
  std::map<Address, Allocation> memory;
  std::map<uintptr_t, size_t> pinned;
  size_t used = 0;
  int retained = 0;
};

struct Card {
  int major = 8, minor = 6;
  size_t memory_bytes = size_t{24} << 30, shared_bytes = 99 << 10;
  std::string uuid;
  Context context;
};

struct Handle {  // an object that belongs to a context
  Context* context;
};
struct Function;
struct Module : Handle {
  LaunchFunction launch;
  std::vector<Function*> functions;
  // name -> size of the parameters in bytes; -1 if the cubin does not contain the kernel
  std::map<std::string, long> kernels;
};
struct Function : Handle {
  Module* module;
  std::string name;
  long parameter_bytes;
  uint32_t dynamic_bytes = kSharedBytesOfAll;
};
struct Event : Handle {
  Stream* stream = nullptr;
  bool is_timed = false, is_done = true;
  double at_s = 0;
};
struct Operation {
  std::function<Result()> run;
  Event* event = nullptr;
};
struct Graph : Handle {
  std::vector<Operation> operations;
};
struct GraphExec : Graph {};
struct Stream : Handle {
  std::deque<Operation> operations;
  std::unique_ptr<Graph> capture;
};

extern std::recursive_mutex lock;
extern std::vector<Card>& cards;
extern std::set<void*>& live;  // handles
extern thread_local std::vector<Context*> current;
extern pid_t started;  // the process that called cuInit
extern long launches, fault_at;
extern Result fault;

// Ends the process with a message: the program uses the driver incorrectly.
[[noreturn]] __attribute__((format(printf, 1, 2))) void misuse(const char* format, ...);

// Returns success if the current context can be used. After a failure, every call returns the same error.
Result usable(const char* what);

// Returns true if the bytes are in one allocation of the context.
bool holds(const Context& context, Address at, size_t bytes);

// Does the work of a stream: all of it, or up to an event.
Result drain(Stream& stream, const Event* until);

// Adds an operation to a stream, or to the graph that it captures.
Result enqueue(Stream* stream, Operation operation);

template <class T>
T* of_now(void* handle, const char* what) {
  auto found = static_cast<T*>(handle);
  if (live.count(handle) == 0) misuse("%s: the handle does not exist, or was destroyed", what);
  if (current.empty() || found->context != current.back()) misuse("%s: the handle belongs to another context", what);
  return found;
}

template <class T>
T* made(T* object) {
  object->context = current.back();
  live.insert(object);
  return object;
}

template <class T>
void unmake(T* object) {
  live.erase(object);
  delete object;
}

}  // namespace octet::emulated

#define API extern "C" __attribute__((visibility("default"))) octet::emulated::Result

// The beginning of a function that needs a current context.
#define USABLE(what)                                 \
  std::lock_guard<std::recursive_mutex> alone(lock); \
  if (Result unusable = usable(what); unusable != kSuccess) return unusable
