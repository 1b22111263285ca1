// Permanently gives up rights of the process before it runs the code of an artifact: Landlock for files, namespaces,
// capabilities, and a seccomp filter for system calls. docs/adr/0042 explains the choice.
//
// If the kernel lacks one of these mechanisms, the process continues without it. The caller gets the names of the
// missing ones.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace octet::plane {

// Restricts the process. Afterwards no thread can read files except those beneath `readable` and the system files that
// the loader and the runtime need. No thread can write files, except existing files beneath `writable`, which threads
// can also read. No thread can start programs or processes, or create sockets other than connected pairs. Must be
// called while the process has one thread. Returns the names of the mechanisms that this kernel does not support.
// Throws std::system_error.
//
// `driver`: the folder of NVIDIA's driver, or empty if none is installed. The driver's devices, and the system files
// that the driver reads, stay accessible. `start_driver` is called before the files are restricted, so it can load and
// open any file.
std::string restrict_process(const std::vector<std::string>& readable, const std::vector<std::string>& writable = {},
                             const std::string& driver = {}, const std::function<void()>& start_driver = {});

// Closes all descriptors except 0, 1, 2 and the given ones, including those that were inherited by mistake.
void keep_only(const std::set<int>& descriptors);

}  // namespace octet::plane
