// What the processor can do, as Linux says it.
#pragma once

#include "memory.h"
#include "octet.h"

namespace octet {

// OCTET_UNSUPPORTED, and what is missing, where the CPU lacks some of these features, as Linux names them, or the kernel
// does not let this process use what they stand for.
octet_status check_cpu(const List<const char*>& flags);

}  // namespace octet
