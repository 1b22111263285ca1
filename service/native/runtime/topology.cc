#include "topology.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace octet {

namespace {

constexpr size_t kFileBytes = 1 << 14;  // The maximum of bytes that are read from a file of the kernel.
// The maximum for a processor (Linux, Documentation/scheduler/sched-capacity.rst).
constexpr int32_t kMostCapacity = 1024;

// The contents of a file whose name is given as a format. Empty if the file cannot be read.
class Text {
 public:
  __attribute__((format(printf, 2, 3))) explicit Text(const char* format, ...) {
    char path[PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    int file = length < PATH_MAX ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t size = 0;
    for (ssize_t got = 1; file >= 0 && got > 0 && size < kFileBytes - 1; size += got > 0 ? got : 0) {
      got = read(file, text_ + size, kFileBytes - 1 - size);
    }
    if (file >= 0) close(file);
    text_[size] = 0;
  }
  char* begin() { return text_; }

 private:
  char text_[kFileBytes];
};

// Parses `0-3,8` as 0, 1, 2, 3, 8.
Mask parse_list(const char* at) {
  Mask found{};
  for (;;) {
    char* end;
    long first = strtol(at, &end, 10), last = first;
    if (end == at) return found;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (long each = first; each <= last && each < Mask::kMost; ++each) found.add(static_cast<int32_t>(each));
    if (*end != ',') return found;
    at = end + 1;
  }
}

Mask parse_list_of(int32_t processor, const char* what) {
  return parse_list(Text("/sys/devices/system/cpu/cpu%d/%s", processor, what).begin());
}

// Returns the capacity of a processor in the kernel's scheduler, or the maximum if the kernel does not report it.
int32_t capacity_of(int32_t processor) {
  long reported = strtol(Text("/sys/devices/system/cpu/cpu%d/cpu_capacity", processor).begin(), nullptr, 10);
  return reported > 0 && reported < kMostCapacity ? static_cast<int32_t>(reported) : kMostCapacity;
}

Core core_of(int32_t processor, const Mask& allowed) {
  Core core{};
  core.processors.add(processor);
  Mask siblings = parse_list_of(processor, "topology/thread_siblings_list");
  for (int32_t each = processor; each < Mask::kMost; ++each) {
    if (siblings.has(each) && allowed.has(each)) core.processors.add(each);
  }
  core.cache = parse_list_of(processor, "cache/index3/shared_cpu_list").first();
  core.capacity = capacity_of(processor);
  return core;
}

// Returns the minimum capacity of the cores to use. The result maximizes the number of cores with at least this
// capacity, times this capacity, because the slowest core determines the speed.
int32_t least_capacity(const Core* cores, int32_t count) {
  int32_t how_many[kMostCapacity + 1] = {};
  for (int32_t each = 0; each < count; ++each) ++how_many[cores[each].capacity];
  int32_t most = 0, least = 0, at_least = 0;
  for (int32_t capacity = kMostCapacity; capacity > 0; --capacity) {
    at_least += how_many[capacity];
    if (how_many[capacity] == 0 || at_least * capacity < most) continue;
    most = at_least * capacity;
    least = capacity;
  }
  return least;
}

// Returns the CPU quota in processors, or 0 if none is set.
double quota_of(const char* root, const char* group) {
  double quota = 0, period = 0;
  if (sscanf(Text("%s%s/cpu.max", root, group).begin(), "%lf %lf", &quota, &period) != 2) {
    quota = strtod(Text("%s%s/cpu.cfs_quota_us", root, group).begin(), nullptr);
    period = strtod(Text("%s%s/cpu.cfs_period_us", root, group).begin(), nullptr);
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// Returns the lowest quota of a group and of its ancestors, which limit the group too. In a container, the group's path
// may be the host's path, although only the root is visible.
double least_quota(const char* root, char* group) {
  double least = 0;
  for (;;) {
    size_t length = strlen(group);
    while (length > 0 && group[length - 1] == '/') group[--length] = 0;
    double quota = quota_of(root, group);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
    if (length == 0) return least;
    *strrchr(group, '/') = 0;
  }
}

bool has_item(const char* list, const char* wanted) {
  size_t length = strlen(wanted);
  for (const char* at = list; at != nullptr; at = strchr(at, ',') == nullptr ? nullptr : strchr(at, ',') + 1) {
    if (strncmp(at, wanted, length) == 0 && (at[length] == ',' || at[length] == 0)) return true;
  }
  return false;
}

}  // namespace

int32_t computing_cores(Core* cores, int32_t most) {
  Mask allowed{}, seen{};
  if (sched_getaffinity(0, Mask::kBytes, reinterpret_cast<cpu_set_t*>(allowed.words())) != 0)
    allowed.add(sched_getcpu());
  int32_t usable = 0;
  for (int32_t processor = 0; processor < Mask::kMost && usable < most; ++processor) {
    if (!allowed.has(processor) || seen.has(processor)) continue;
    cores[usable] = core_of(processor, allowed);
    seen.add(cores[usable++].processors);
  }
  int32_t least = least_capacity(cores, usable), count = 0;
  for (int32_t each = 0; each < usable; ++each) {
    if (cores[each].capacity >= least) cores[count++] = cores[each];
  }
  return count;
}

int32_t affordable_threads(int32_t cores) {
  double least = cores;
  Text groups("/proc/self/cgroup");
  char* rest;
  for (char* line = strtok_r(groups.begin(), "\n", &rest); line != nullptr; line = strtok_r(nullptr, "\n", &rest)) {
    char* controllers = strchr(line, ':');  // 5:cpu,cpuacct:/some/group
    char* group = controllers == nullptr ? nullptr : strchr(controllers + 1, ':');
    if (group == nullptr || group[1] != '/') continue;
    *group++ = 0;
    ++controllers;
    if (*controllers != 0 && !has_item(controllers, "cpu")) continue;
    // Version 1 has a folder for each controller.
    double quota = least_quota(*controllers != 0 ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup", group);
    if (quota > 0 && quota < least) least = quota;
  }
  return least < 1 ? 1 : static_cast<int32_t>(least);
}

}  // namespace octet
