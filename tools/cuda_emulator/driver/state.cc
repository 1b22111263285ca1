#include "tools/cuda_emulator/driver/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

namespace octet::emulated {

std::recursive_mutex lock;
// The objects of a lost context cannot be freed, so these variables live until the process ends.
std::vector<Card>& cards = *new std::vector<Card>;
std::set<void*>& live = *new std::set<void*>;
thread_local std::vector<Context*> current;
pid_t started = 0;
long launches = 0, fault_at = -1;
Result fault = kLaunchFailed;

void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "emulated libcuda: misuse: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  abort();
}

Result usable(const char* what) {
  if (started != getpid()) return kNotInitialized;
  if (current.empty()) misuse("%s: no context is current", what);
  return current.back()->failed;
}

bool holds(const Context& context, Address at, size_t bytes) {
  auto found = context.memory.upper_bound(at);
  if (found == context.memory.begin()) return false;
  --found;
  return at - found->first <= found->second.bytes && bytes <= found->second.bytes - (at - found->first);
}

namespace {

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Result drain(Stream& stream, const Event* until) {
  Context& context = *stream.context;
  while (!stream.operations.empty() && !(until != nullptr && until->is_done)) {
    Operation next = std::move(stream.operations.front());
    stream.operations.pop_front();
    if (next.event != nullptr) {
      next.event->is_done = true;
      next.event->at_s = now_s();
    } else if (context.failed == kSuccess) {
      context.failed = next.run();
    }
  }
  return context.failed;
}

Result enqueue(Stream* stream, Operation operation) {
  if (stream->capture != nullptr) {
    if (operation.event != nullptr) misuse("an event is recorded in a capture");
    stream->capture->operations.push_back(std::move(operation));
  } else {
    stream->operations.push_back(std::move(operation));
  }
  return kSuccess;
}

}  // namespace octet::emulated
