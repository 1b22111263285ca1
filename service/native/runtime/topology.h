// The cores that this process may use, and how many of them the quota of its control group pays for.
#pragma once

#include <cstdint>

#include "placement.h"

namespace octet {

// Each core that this thread may use and that computes fast: as many of the fastest as compute most together, where n
// count as n of the slowest among them, since a layer waits for its last thread. All, where the kernel does not say how
// fast they are (cpu_capacity). Processors that are threads of one core are together; each is for itself where the
// kernel does not say. Cores lie around one cache where it does not say otherwise.
//
//   cores: room for `most` of them.
// Returns how many they are.
int32_t computing_cores(Core* cores, int32_t most);

// On how many of `cores` this process may compute at a time, by the control groups of versions 1 and 2 that it is in. A
// quota of one and a half processors pays for one thread: two would both be stopped in the middle of a period.
int32_t affordable_threads(int32_t cores);

}  // namespace octet
