#include "control/lockdown.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "control/system_call_filter.h"

namespace octet::plane {

namespace {

// --- Landlock (https://docs.kernel.org/userspace-api/landlock.html). The constants are repeated here because the
// installed kernel headers may be older than the kernel.

constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446, kCloseRange = 436;
constexpr uint64_t kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDir = 1 << 3, kReading = kReadFile | kReadDir;
constexpr uint64_t kCommandDevice = 1 << 15;
constexpr uint32_t kVersion = 1, kPathBeneath = 1;
// Pairs of a Landlock ABI version and the file access rights that it can restrict. Contains only versions that added a
// right.
constexpr std::array<std::pair<int, uint64_t>, 4> kRights = {
    {{1, (1 << 13) - 1}, {2, (1 << 14) - 1}, {3, (1 << 15) - 1}, {5, (1 << 16) - 1}}};
constexpr uint64_t kTcp = 3, kScopes = 3;  // bind and connect; abstract sockets and signals to other processes
constexpr int kTcpSince = 4, kScopesSince = 6;

// The paths that the dynamic loader, the runtime's detection of cores, and reads of /proc require.
constexpr std::array kSystem = {"/lib",
                                "/lib64",
                                "/usr/lib",
                                "/usr/lib64",
                                "/etc/ld.so.cache",
                                "/proc/cpuinfo",
                                "/proc/self/cgroup",
                                "/sys/devices/system",
                                "/sys/fs/cgroup"};

// Paths that NVIDIA's driver reads to find its GPUs, and the prefixes of its devices. service/compiler/sandbox/gpus.py
// has the same list.
constexpr std::array kOfDriver = {"/proc/driver/nvidia", "/proc/driver/nvidia-caps",
                                  "/proc/devices",       "/proc/modules",
                                  "/proc/self",          "/proc/meminfo",
                                  "/proc/sys/vm",        "/sys/bus/pci",
                                  "/sys/devices",        "/sys/module",
                                  "/usr/share/nvidia"};
constexpr char kDevices[] = "/dev", kCards[] = "nvidia", kCardOfWindows[] = "/dev/dxg";

struct Ruleset {
  uint64_t files = 0, net = 0, scopes = 0;
};

struct __attribute__((packed)) PathBeneath {
  uint64_t rights;
  int32_t parent;
};

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

// Grants `rights` on `path`, or read access if `rights` is 0. Returns false if the path does not exist.
//
// Leaves files of /proc open. Landlock identifies a file by its inode. When memory is short, the kernel drops inodes of
// /proc that are not open, and later creates others, which no rule allows.
bool allow(int ruleset, const std::string& path, uint64_t rights = 0) {
  int descriptor = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (descriptor < 0) return false;
  struct stat status{};
  bool is_folder = ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  if (rights == 0) rights = is_folder ? kReading : kReadFile;
  PathBeneath rule{rights, descriptor};
  long result = ::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0);
  if (!path.starts_with("/proc/")) ::close(descriptor);
  if (result < 0) fail("landlock_add_rule");
  return true;
}

void allow_cards(int ruleset, const std::string& driver, uint64_t handled) {
  constexpr uint64_t kUse = kReadFile | kWriteFile | kCommandDevice;
  allow(ruleset, driver);
  for (const char* path : kOfDriver) allow(ruleset, path);
  allow(ruleset, kCardOfWindows, kUse & handled);
  DIR* devices = ::opendir(kDevices);
  if (devices == nullptr) return;
  for (const dirent* each = ::readdir(devices); each != nullptr; each = ::readdir(devices)) {
    if (std::strncmp(each->d_name, kCards, sizeof kCards - 1) != 0) continue;
    // the MIG capability devices are in a folder, so it must be readable
    uint64_t rights = each->d_type == DT_DIR ? kUse | kReadDir : kUse;
    allow(ruleset, std::string(kDevices) + "/" + each->d_name, rights & handled);
  }
  ::closedir(devices);
}

// Restricts the process with Landlock. Returns false if the kernel does not support it.
bool restrict_files(const std::vector<std::string>& readable, const std::vector<std::string>& writable,
                    const std::string& driver) {
  long version = ::syscall(kCreateRuleset, nullptr, 0, kVersion);
  if (version <= 0) return false;
  Ruleset handled;
  for (const auto& [since, rights] : kRights) handled.files = version >= since ? rights : handled.files;
  if (version >= kTcpSince) handled.net = kTcp;
  if (version >= kScopesSince) handled.scopes = kScopes;
  size_t bytes = version >= kScopesSince ? sizeof handled
                 : version >= kTcpSince  ? offsetof(Ruleset, scopes)
                                         : offsetof(Ruleset, net);
  auto ruleset = static_cast<int>(::syscall(kCreateRuleset, &handled, bytes, 0));
  if (ruleset < 0) fail("landlock_create_ruleset");
  for (const char* path : kSystem) allow(ruleset, path);
  for (const std::string& path : readable) {
    if (!allow(ruleset, path)) fail(path);
  }
  for (const std::string& path : writable) {
    // only existing files: gives no right to create or remove files
    if (!allow(ruleset, path, kReadFile | kWriteFile)) fail(path);
  }
  if (!driver.empty()) allow_cards(ruleset, driver, handled.files);
  if (::syscall(kRestrictSelf, ruleset, 0) < 0) fail("landlock_restrict_self");
  ::close(ruleset);
  return true;
}

// --- Capabilities and namespaces, which system call filters do not cover ---------------------------------------------

void write_to(const char* path, const std::string& text) {
  int descriptor = ::open(path, O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  // If this fails, other users' ids stay unmapped, which does no harm.
  [[maybe_unused]] ssize_t written = ::write(descriptor, text.data(), text.size());
  ::close(descriptor);
}

// Moves the process into its own user namespace, if the system permits it. Capabilities in that namespace have no
// effect outside of it. Then moves it into a network namespace without interfaces and into an IPC namespace. Existing
// sockets keep the network in which they were created. Files keep their owners, because this user is mapped to itself.
void leave_namespaces() {
  std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) < 0) return;
  write_to("/proc/self/setgroups", "deny");
  write_to("/proc/self/uid_map", user + " " + user + " 1");
  write_to("/proc/self/gid_map", group + " " + group + " 1");
}

void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(__NR_capset, &header, none) < 0) fail("capset");
}

// --- seccomp ---------------------------------------------------------------------------------------------------------

// Installs a filter for all threads. Returns false if the kernel does not support seccomp filters.
bool install(std::vector<sock_filter> code) {
  sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return ::syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

}  // namespace

void keep_only(const std::set<int>& descriptors) {
  unsigned first = 3;
  for (int kept : descriptors) {
    auto next = static_cast<unsigned>(kept);
    if (next > first) ::syscall(kCloseRange, first, next - 1, 0);
    first = std::max(first, next + 1);
  }
  ::syscall(kCloseRange, first, ~0u, 0);
}

std::string restrict_process(const std::vector<std::string>& readable, const std::vector<std::string>& writable,
                             const std::string& driver, const std::function<void()>& start_driver) {
  leave_namespaces();
  drop_capabilities();
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail("no_new_privs");
  // Threads that the driver starts here are restricted by seccomp, but not by Landlock.
  if (!driver.empty()) start_driver();
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // prevents other processes of the user from attaching with ptrace
  std::string missing;
  if (!restrict_files(readable, writable, driver)) missing = "Landlock";
  if (!install(filter_of(::getpid(), !writable.empty(), !driver.empty()))) {
    missing.append(missing.empty() ? "" : " and no ").append("seccomp");
  }
  return missing;
}

}  // namespace octet::plane
