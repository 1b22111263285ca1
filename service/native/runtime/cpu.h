// The features of the processor, as Linux reports them.
#pragma once

#include "memory.h"
#include "octet.h"

namespace octet {

// Checks that the CPU has these features, given by their names in Linux. Otherwise returns OCTET_UNSUPPORTED with a
// list of the missing ones. A feature is also missing if the kernel does not permit this process to use it.
octet_status check_cpu(const List<const char*>& flags);

}  // namespace octet
