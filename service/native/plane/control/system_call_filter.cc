#include "control/system_call_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace octet::plane {

namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// The system calls that are allowed with any arguments. This is an allow list, because new kernel versions add calls
// that a deny list would permit.
constexpr long kAllowed[] = {
    // Memory, threads and time. A filter cannot tell thread ids apart, so sched_setaffinity cannot be restricted to
    // this process's threads: the process can set the affinity of any process of the same user.
    __NR_brk,
    __NR_mmap,
    __NR_munmap,
    __NR_mremap,
    __NR_mprotect,
    __NR_madvise,
    __NR_membarrier,
    __NR_futex,
    __NR_set_robust_list,
    __NR_rseq,
    __NR_exit,
    __NR_exit_group,
    __NR_gettid,
    __NR_getpid,
    __NR_geteuid,
    __NR_sched_yield,
    __NR_sched_getaffinity,
    __NR_sched_setaffinity,
    __NR_getcpu,
    __NR_sysinfo,
    __NR_uname,
    __NR_clock_gettime,
    __NR_clock_nanosleep,
    __NR_nanosleep,
    __NR_gettimeofday,
    __NR_getrandom,
    __NR_restart_syscall,
    // Signals.
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_sigaltstack,
    __NR_signalfd4,
    // Files. Landlock restricts which of them can be opened.
    __NR_close,
    __NR_read,
    __NR_readv,
    __NR_pread64,
    __NR_lseek,
    __NR_fstat,
    __NR_newfstatat,
    __NR_getdents64,
    __NR_write,
    __NR_writev,
    // Calls on existing and on accepted sockets.
    __NR_accept4,
    __NR_recvfrom,
    __NR_recvmsg,
    __NR_shutdown,
    __NR_getsockopt,
    __NR_getsockname,
    __NR_getpeername,
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_pwait,
    __NR_eventfd2,
    __NR_ppoll,
#if defined(__x86_64__)
    __NR_stat,
    __NR_lstat,
    __NR_epoll_wait,
    __NR_poll,
    __NR_time,
    __NR_arch_prctl,
    __NR_readlink,
    __NR_access,
#endif
    __NR_readlinkat,
    __NR_faccessat,
};

// Calls that NVIDIA's driver makes in addition after its start, according to its public sources and to an observed run
// (version 580.159).
constexpr long kOfCards[] = {
    __NR_dup,
    __NR_pipe2,
    __NR_mincore,
    __NR_mlock,
    __NR_mlock2,
    __NR_munlock,
    __NR_get_mempolicy,
    __NR_set_mempolicy,
    __NR_mbind,
    __NR_memfd_create,
    __NR_getuid,
    __NR_getgid,
    __NR_getegid,
    __NR_getppid,
    __NR_statx,
    __NR_statfs,
    __NR_fstatfs,
    __NR_clock_getres,
    __NR_sched_getparam,
    __NR_sched_getscheduler,
    __NR_sched_get_priority_max,
    __NR_sched_get_priority_min,
#if defined(__x86_64__)
    __NR_getrlimit,
#endif
};
// Commands of the control device have type F (NV_IOCTL_MAGIC in nv-ioctl-numbers.h). Commands of the unified memory
// device are plain numbers (uvm_ioctl.h, uvm_linux_ioctl.h). Landlock restricts the devices.
constexpr uint32_t kCommandType = 0x4600, kCommandTypeMask = 0xff00, kPlainCommands = ~0xffu;
constexpr std::array<uint32_t, 2> kCommandsOfUnifiedMemory = {0x30000001, 0x30000002};

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
// glibc first calls clone3, whose flags are in memory, where a filter cannot read them. If clone3 returns ENOSYS, glibc
// calls clone.
constexpr uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;

constexpr uint32_t kThread = CLONE_THREAD | CLONE_VM | CLONE_SIGHAND;
constexpr uint32_t kOfThreads = kThread | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                                CLONE_CHILD_CLEARTID | CLONE_DETACHED | CLONE_CHILD_SETTID;
// The C library uses prctl only to set names of threads and of mappings. Other options could regain rights that were
// given up here.
constexpr uint32_t kSetVma = 0x53564d41;
// F_SETOWN and similar commands are excluded, because they make the kernel send signals to another process.
constexpr std::array<uint32_t, 6> kDescriptorCommands = {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC};
constexpr uint32_t kConnects = MSG_FASTOPEN;  // connects a socket, even a listening socket that was shut down

using Program = std::vector<sock_filter>;

sock_filter statement(int code, uint32_t value) { return {static_cast<uint16_t>(code), 0, 0, value}; }
sock_filter give(uint32_t result) { return statement(BPF_RET | BPF_K, result); }
sock_filter word(size_t offset) { return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
// The half of an argument that the kernel uses for an int (little-endian), and the other half.
sock_filter low(int argument) { return word(offsetof(seccomp_data, args) + 8 * argument); }
sock_filter high(int argument) { return word(offsetof(seccomp_data, args) + 8 * argument + 4); }

Program operator+(Program first, const Program& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Runs `then`, which must return, if the loaded value equals `value`.
Program if_equal(uint32_t value, const Program& then) {
  auto skipped = static_cast<uint8_t>(then.size());
  return Program{{BPF_JMP | BPF_JEQ | BPF_K, 0, skipped, value}} + then;
}

// Like `if_equal`, but compares only the bits of the word `what` that are set in `mask`.
Program if_masked(sock_filter what, uint32_t mask, uint32_t value, const Program& then) {
  return Program{what, statement(BPF_ALU | BPF_AND | BPF_K, mask)} + if_equal(value, then);
}

template <typename Values>
Program only_among(int argument, const Values& values) {
  Program program{low(argument)};
  for (uint32_t value : values) program = program + if_equal(value, {give(SECCOMP_RET_ALLOW)});
  return program + Program{give(kRefuse)};
}

Program only_without(int argument, uint32_t flags) {
  return if_masked(low(argument), flags, 0, {give(SECCOMP_RET_ALLOW)}) + Program{give(kRefuse)};
}

constexpr uint32_t kAccessMode = 3;  // the kernel's mask; musl's O_ACCMODE has more bits

// Refuses to open a file with truncation for reading, and refuses access mode 3. Before version 3, Landlock checks no
// right to truncate. In access mode 3, it checks no right at all.
Program only_untruncated(int argument) {
  return if_masked(low(argument), kAccessMode, kAccessMode, {give(kRefuse)}) +
         if_masked(low(argument), kAccessMode | O_TRUNC, O_RDONLY | O_TRUNC, {give(kRefuse)}) +
         Program{give(SECCOMP_RET_ALLOW)};
}

}  // namespace

std::vector<sock_filter> filter_of(pid_t process, bool writes_files, bool uses_cards) {
  auto own = static_cast<uint32_t>(process);
  const Program allow{give(SECCOMP_RET_ALLOW)}, refuse{give(kRefuse)};
  const Program nowhere = if_masked(low(4), ~0u, 0, if_masked(high(4), ~0u, 0, allow) + refuse) + refuse;
  const Program stream = if_masked(low(1), ~(SOCK_NONBLOCK | SOCK_CLOEXEC), SOCK_STREAM, allow) + refuse;
  // The calls for sending responses come first. The kernel runs the filter only for these conditional calls, because it
  // caches which calls are always allowed.
  const std::pair<long, Program> conditions[] = {
      {__NR_sendmsg, only_without(2, kConnects)},
      {__NR_sendto, if_masked(low(3), kConnects, kConnects, refuse) + nowhere},
      {__NR_clone3, {give(kUnknown)}},
      {__NR_clone, if_masked(low(0), ~kOfThreads, 0, if_masked(low(0), kThread, kThread, allow) + refuse) + refuse},
      {__NR_tgkill, only_among(0, std::array{own})},
      {__NR_prlimit64, only_among(0, std::array{0u, own})},
      {__NR_prctl, only_among(0, std::array<uint32_t, 3>{PR_SET_NAME, PR_GET_NAME, kSetVma})},
      {__NR_fcntl, only_among(1, kDescriptorCommands)},
      {__NR_openat, only_untruncated(2)},
      // Only connected stream pairs: a datagram socket could send to any address.
      {__NR_socketpair, if_masked(low(0), ~0u, AF_UNIX, stream) + refuse},
      {__NR_setsockopt, only_among(1, std::array<uint32_t, 2>{SOL_SOCKET, IPPROTO_TCP})},
#if defined(__x86_64__)
      {__NR_open, only_untruncated(1)},
#endif
  };
  Program program{word(offsetof(seccomp_data, arch)), {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, kArchitecture}};
  program = program + Program{give(SECCOMP_RET_KILL_PROCESS), word(offsetof(seccomp_data, nr))};
  for (const auto& [number, then] : conditions) program = program + if_equal(static_cast<uint32_t>(number), then);
  for (long number : kAllowed) program = program + if_equal(static_cast<uint32_t>(number), allow);
  if (writes_files) program = program + if_equal(__NR_pwrite64, allow);
  if (uses_cards) {
    for (long number : kOfCards) program = program + if_equal(static_cast<uint32_t>(number), allow);
    program = program + if_equal(__NR_ioctl, if_masked(low(1), kCommandTypeMask, kCommandType, allow) +
                                                 if_masked(low(1), kPlainCommands, 0, allow) +
                                                 only_among(1, kCommandsOfUnifiedMemory));
  }
  return program + refuse;
}

}  // namespace octet::plane
