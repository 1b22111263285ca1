// The cores that this process may use, and the number of threads that the quota of its control group permits.
#pragma once

#include <cstdint>

#include "placement.h"

namespace octet {

// Finds the cores to compute on: the fastest ones among those that this thread may use, as many as maximize their joint
// speed. n cores count as n times the slowest of them, because a layer waits for its last thread. If the kernel does
// not report speeds (cpu_capacity), all cores are used. The hardware threads of one core are combined; if the kernel
// does not report them, each processor counts as a core. If the kernel does not report caches, all cores count as
// sharing one.
//
//   cores: an array for up to `most` cores.
//
// Returns the number of cores.
int32_t computing_cores(Core* cores, int32_t most);

// Returns on how many of `cores` this process may compute at a time, according to its control groups of version 1 and
// 2. A quota of 1.5 processors permits one thread, because two would both be throttled in the middle of a period.
int32_t affordable_threads(int32_t cores);

}  // namespace octet
