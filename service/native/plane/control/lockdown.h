// Rights that the process gives up for ever, before it runs the code of an artifact. docs/adr/0042 says which.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace octet::plane {

// From now on no thread reads files but those beneath `readable` and what the loader and the runtime read of the system,
// or writes any but those beneath `writable`, which it reads and does not make; none starts programs or processes, or
// makes sockets but pairs of them. To be called while there is one thread. Returns what this kernel cannot take away;
// empty: nothing. Throws std::system_error.
// `driver`: the folder of NVIDIA's; its devices, and what it reads of the system, stay open to it. What it loads and opens
// when `start_driver` is called, is its own affair. Empty: there is none.
std::string lock_in(const std::vector<std::string>& readable, const std::vector<std::string>& writable = {},
                    const std::string& driver = {}, const std::function<void()>& start_driver = {});

// The list of system calls that `process`, which it is about, may then make. Those that it may make on itself alone, or
// in part, are compared by their arguments.
std::vector<sock_filter> filter_of(pid_t process, bool writes_files, bool uses_cards);

// Closes all descriptors but 0, 1, 2 and these, whoever forgot them.
void keep_only(const std::set<int>& descriptors);

}  // namespace octet::plane
