// The seccomp filter of the data plane: an allow list of system calls, some of them with certain arguments only.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <vector>

namespace octet::plane {

// Returns the seccomp program for the process with the id `process`, which is this one. Calls that are allowed only for
// the process itself, or only in part, are filtered by their arguments.
std::vector<sock_filter> filter_of(pid_t process, bool writes_files, bool uses_cards);

}  // namespace octet::plane
