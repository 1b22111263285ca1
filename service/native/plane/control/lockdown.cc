#include "control/lockdown.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace octet::plane {

namespace {

// --- Landlock (https://docs.kernel.org/userspace-api/landlock.html), whose header may be older than the kernel -------

constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr uint64_t kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDir = 1 << 3, kReading = kReadFile | kReadDir;
constexpr uint32_t kVersion = 1, kPathBeneath = 1;
// Of an ABI version, all the rights to files that it can take away; by the first version that has one more.
constexpr std::array<std::pair<int, uint64_t>, 4> kRights = {
    {{1, (1 << 13) - 1}, {2, (1 << 14) - 1}, {3, (1 << 15) - 1}, {5, (1 << 16) - 1}}};
constexpr uint64_t kTcp = 3, kScopes = 3;  // bind and connect; abstract sockets and signals of others
constexpr int kTcpSince = 4, kScopesSince = 6;

// What the dynamic loader, the runtime's look at the cores and /proc's own say.
constexpr std::array kSystem = {"/lib",     "/lib64",  "/usr/lib",          "/usr/lib64",    "/etc/ld.so.cache",
                                "/proc/cpuinfo", "/proc/self/cgroup", "/sys/devices/system", "/sys/fs/cgroup"};

struct Ruleset {
  uint64_t files = 0, net = 0, scopes = 0;
};

struct __attribute__((packed)) PathBeneath {
  uint64_t rights;
  int32_t parent;
};

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

// False: there is no such path.
bool allow(int ruleset, const std::string& path, uint64_t rights = 0) {
  int descriptor = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (descriptor < 0) return false;
  struct stat status{};
  bool is_folder = ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  if (rights == 0) rights = is_folder ? kReading : kReadFile;
  PathBeneath rule{rights, descriptor};
  long result = ::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0);
  ::close(descriptor);
  if (result < 0) fail("landlock_add_rule");
  return true;
}

// False: this kernel has none.
bool restrict_files(const std::vector<std::string>& readable, const std::vector<std::string>& writable) {
  long version = ::syscall(kCreateRuleset, nullptr, 0, kVersion);
  if (version <= 0) return false;
  Ruleset handled;
  for (const auto& [since, rights] : kRights) handled.files = version >= since ? rights : handled.files;
  if (version >= kTcpSince) handled.net = kTcp;
  if (version >= kScopesSince) handled.scopes = kScopes;
  size_t bytes = version >= kScopesSince ? sizeof handled : version >= kTcpSince ? offsetof(Ruleset, scopes) : offsetof(Ruleset, net);
  auto ruleset = static_cast<int>(::syscall(kCreateRuleset, &handled, bytes, 0));
  if (ruleset < 0) fail("landlock_create_ruleset");
  for (const char* path : kSystem) allow(ruleset, path);
  for (const std::string& path : readable) {
    if (!allow(ruleset, path)) fail(path);
  }
  for (const std::string& path : writable) {
    if (!allow(ruleset, path, kReadFile | kWriteFile)) fail(path);  // of files that are there; none is made or removed
  }
  if (::syscall(kRestrictSelf, ruleset, 0) < 0) fail("landlock_restrict_self");
  ::close(ruleset);
  return true;
}

// --- seccomp ---------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// A list of what is allowed: each kernel brings new calls, and a list of what is not would let them pass.
constexpr long kAllowed[] = {
    // Memory, threads and time.
    __NR_brk, __NR_mmap, __NR_munmap, __NR_mremap, __NR_mprotect, __NR_madvise, __NR_membarrier, __NR_futex,
    __NR_set_robust_list, __NR_rseq, __NR_exit, __NR_exit_group, __NR_gettid, __NR_getpid, __NR_tgkill, __NR_sched_yield,
    __NR_sched_getaffinity, __NR_sched_setaffinity, __NR_getcpu, __NR_prctl, __NR_prlimit64, __NR_sysinfo, __NR_uname,
    __NR_clock_gettime, __NR_clock_nanosleep, __NR_nanosleep, __NR_gettimeofday, __NR_getrandom, __NR_restart_syscall,
    // Signals.
    __NR_rt_sigaction, __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sigaltstack, __NR_signalfd4,
    // Files, as far as Landlock lets them be opened.
    __NR_openat, __NR_close, __NR_read, __NR_readv, __NR_pread64, __NR_lseek, __NR_fstat, __NR_newfstatat, __NR_fcntl,
    __NR_getdents64, __NR_write, __NR_writev,
    // Sockets that there are, and those that are accepted.
    __NR_accept4, __NR_recvfrom, __NR_recvmsg, __NR_sendto, __NR_sendmsg, __NR_shutdown, __NR_getsockopt, __NR_setsockopt,
    __NR_getsockname, __NR_getpeername, __NR_epoll_create1, __NR_epoll_ctl, __NR_epoll_pwait, __NR_eventfd2, __NR_ppoll,
#if defined(__x86_64__)
    __NR_open, __NR_stat, __NR_lstat, __NR_epoll_wait, __NR_poll, __NR_time, __NR_arch_prctl, __NR_readlink, __NR_access,
#endif
    __NR_readlinkat, __NR_faccessat,
};

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
// glibc asks clone3 first, whose flags are in memory, which no filter reads; and then clone.
constexpr uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;
constexpr uint32_t kLow = 0;  // of an argument, little-endian

class Filter {
 public:
  explicit Filter(bool writes_files) {
    load(offsetof(seccomp_data, arch));
    unless(kArchitecture, SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
    for (long number : kAllowed) if_equal(static_cast<uint32_t>(number), SECCOMP_RET_ALLOW);
    if (writes_files) if_equal(__NR_pwrite64, SECCOMP_RET_ALLOW);
    if_equal(__NR_clone3, kUnknown);
    only_with(__NR_clone, CLONE_THREAD);
    only_if(__NR_socketpair, AF_UNIX);
    put(BPF_RET | BPF_K, kRefuse);
  }

  // False: this kernel has none.
  bool install() {
    sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    return ::syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
  }

 private:
  void put(uint16_t code, uint32_t value, uint8_t yes = 0, uint8_t no = 0) { code_.push_back({code, yes, no, value}); }
  void load(uint32_t offset) { put(BPF_LD | BPF_W | BPF_ABS, offset); }
  void if_equal(uint32_t value, uint32_t result) {
    put(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    put(BPF_RET | BPF_K, result);
  }
  void unless(uint32_t value, uint32_t result) {
    put(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    put(BPF_RET | BPF_K, result);
  }
  // A call whose first argument has this flag, or is this.
  void only_with(uint32_t number, uint32_t flag) { only(number, BPF_JSET, flag); }
  void only_if(uint32_t number, uint32_t value) { only(number, BPF_JEQ, value); }
  void only(uint32_t number, uint16_t test, uint32_t value) {
    put(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
    load(offsetof(seccomp_data, args) + kLow);
    put(static_cast<uint16_t>(BPF_JMP | test | BPF_K), value, 0, 1);
    put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    put(BPF_RET | BPF_K, kRefuse);
  }

  std::vector<sock_filter> code_;
};

}  // namespace

std::string lock_in(const std::vector<std::string>& readable, const std::vector<std::string>& writable) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail("no_new_privs");
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // what it holds is nobody's to attach to
  std::string missing;
  if (!restrict_files(readable, writable)) missing = "Landlock";
  if (!Filter(!writable.empty()).install()) missing.append(missing.empty() ? "" : " and no ").append("seccomp");
  return missing;
}

}  // namespace octet::plane
