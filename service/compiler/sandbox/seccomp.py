"""The seccomp filter: an allow list of the system calls that numerical code, a compiler and a linker need.

The filter is an allow list because every new kernel adds system calls (io_uring, the mount API, pidfd, Landlock's own),
so a deny list would soon be incomplete. The list contains the calls that glibc, musl, CPython, NumPy, LLVM, TVM and
LiteRT make after their code has been loaded: for memory, files (which Landlock restricts), threads, clocks, and signals
to the process itself.

Other calls are denied as follows:

- A call of a foreign architecture (int 0x80, x32) kills the process. No program makes such a call by accident.
- A call that existed when the table was written but is not listed fails with EPERM. Libraries that try such a call (a
  fork in a helper, a socket for a log) continue without it. The attempt is visible as a PermissionError.
- A call above `HIGHEST_KNOWN`, and clone3, fail with ENOSYS, so that a newer libc falls back to an older call. clone3
  passes its flags in memory, which a filter cannot read; clone passes them in a register.
- Calls that are harmless only if they apply to the process itself (kill, prlimit64, sched_setaffinity …) are allowed
  only if they do so.
- chmod, chown, utime, xattr and truncate by path are denied by this filter, because no Landlock version restricts the
  first four, and Landlock versions before 3 do not restrict truncate.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence

from service.compiler.sandbox import bpf, gpus
from service.compiler.sandbox.kernel import architecture, syscall
from service.compiler.sandbox.syscalls import HIGHEST_KNOWN, numbers

_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x4000_0000

ALLOWED: tuple[str, ...] = (
    # the most frequent calls are first, because the filter is evaluated in order
    *("futex", "read", "write", "mmap", "munmap", "mprotect", "madvise", "brk", "mremap", "msync", "membarrier"),
    *("clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time", "times"),
    *("readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "lseek"),
    *("close", "close_range", "dup", "dup2", "dup3", "poll", "ppoll", "select", "pselect6"),
    *("stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2"),
    *("readlink", "readlinkat", "getdents", "getdents64", "getcwd", "umask"),
    *("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat"),
    *("ftruncate", "fallocate", "fsync", "fdatasync", "fadvise64", "sendfile", "copy_file_range"),
    *("set_robust_list", "set_tid_address", "rseq", "exit", "exit_group", "arch_prctl", "getcpu"),
    *("sched_yield", "sched_getaffinity", "sched_getparam", "sched_getscheduler"),
    *("sched_get_priority_max", "sched_get_priority_min"),
    *("gettid", "getpid", "getppid", "getuid", "geteuid", "getgid", "getegid"),
    *("getresuid", "getresgid", "getgroups", "getpgrp", "getrusage", "getrlimit", "uname", "sysinfo", "getrandom"),
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend"),
    *("sigaltstack", "pause", "restart_syscall"),
)

# The flags of a new thread of this process. No namespaces, no parent change, no vfork.
_CLONE_THREAD = 0x0001_0000 | 0x0000_0100 | 0x0000_0800  # THREAD, VM, SIGHAND
_CLONE_ALLOWED = (
    _CLONE_THREAD
    | 0x0000_0200  # FS
    | 0x0000_0400  # FILES
    | 0x0004_0000  # SYSVSEM
    | 0x0008_0000  # SETTLS
    | 0x0010_0000  # PARENT_SETTID
    | 0x0020_0000  # CHILD_CLEARTID
    | 0x0040_0000  # DETACHED (ignored by the kernel; musl passes it)
    | 0x0100_0000  # CHILD_SETTID
)
_PRCTL_ALLOWED = (
    3,  # GET_DUMPABLE
    15,  # 15 is SET_NAME, for the name of a thread
    16,  # GET_NAME
    23,  # CAPBSET_READ
    39,  # GET_NO_NEW_PRIVS
    51,  # SVE_GET_VL
    64,  # SME_GET_VL
    0x53564D41,  # SET_VMA: glibc names its mappings
)
_IOCTL_ALLOWED = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX
# DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, OFD_GETLK, OFD_SETLK, OFD_SETLKW, DUPFD_CLOEXEC. SETOWN is
# not allowed, because it makes the kernel signal another process.
_FCNTL_ALLOWED = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030)
_O_ACCMODE, _O_TRUNC = 0o3, 0o1000


def build(
    machine: str,
    pid: int,
    *,
    threads: bool = True,
    execute: bool = False,
    places_threads: bool = False,
    uses_gpus: bool = False,
    connected: bool = False,
) -> bpf.Program:
    """Returns the filter for `machine` (`x86_64` or `aarch64`).

    Args:
        machine: the output of `uname -m`.
        pid: the process that is filtered. It may signal only itself.
        threads: true if the process may start threads.
        execute: true if the process may exec another program. Landlock restricts which one.
        places_threads: true if the process may set the processors of any thread. A filter cannot distinguish the
            threads of this process from those of other processes.
        uses_gpus: true if NVIDIA's driver runs in the process; see `gpus`.
        connected: true if the process may send and receive over sockets that are already connected. It can then name no
            other address.
    """
    table = numbers(machine)
    allow, refuse, missing = bpf.RET_ALLOW, bpf.RET_ERRNO | errno.EPERM, bpf.RET_ERRNO | errno.ENOSYS

    def among(index: int, values: Sequence[int], otherwise: int = refuse) -> bpf.Program:
        program = bpf.load(bpf.argument(index))
        for value in values:
            program += bpf.when_equal(value, bpf.give(allow))
        return program + bpf.give(otherwise)

    # The kernel reads process ids, commands and open flags as 32-bit integers, so it is enough to compare the low half.
    conditions: dict[str, bpf.Program] = {
        "kill": among(0, [pid]),
        "tgkill": among(0, [pid]),  # abort() and raise() send a signal to their own thread
        "prlimit64": among(0, [0, pid]),
        "sched_setaffinity": bpf.give(allow) if places_threads else among(0, [0, pid]),
        "prctl": among(0, _PRCTL_ALLOWED),
        "ioctl": (_ioctl_of_gpus() if uses_gpus else []) + among(1, _IOCTL_ALLOWED, bpf.RET_ERRNO | errno.ENOTTY),
        "fcntl": among(1, _FCNTL_ALLOWED),
        "open": _open(1),
        "openat": _open(2),
        "clone3": bpf.give(missing),
    }
    if uses_gpus:
        family, kind = gpus.SOCKET
        passes = bpf.when_masked(bpf.argument(0), 0xFFFF_FFFF, family, among(1, [kind]))
        conditions["socket"] = passes + bpf.give(refuse)
        conditions["setsockopt"] = among(1, [socket.SOL_SOCKET])
        conditions["connect"] = bpf.give(bpf.RET_ERRNO | errno.ENOENT)
    if connected:
        conditions |= _connected()
    if threads:
        must = bpf.when_masked(bpf.argument(0), _CLONE_THREAD, _CLONE_THREAD, bpf.give(allow)) + bpf.give(refuse)
        conditions["clone"] = [
            *bpf.load(bpf.argument(0)),
            bpf.Instruction(bpf.AND, ~_CLONE_ALLOWED & 0xFFFF_FFFF),
            *bpf.when_equal(0, must),
            *bpf.give(refuse),
        ]
    if execute:
        conditions["execve"] = bpf.give(allow)

    program = bpf.load(bpf.ARCHITECTURE)
    program.append(bpf.Instruction(bpf.JEQ, _AUDIT_ARCHITECTURE[machine], 1, 0))
    program += bpf.give(bpf.RET_KILL_PROCESS)
    program += bpf.load(bpf.SYSCALL)
    program += bpf.when_at_least(_X32_BIT, bpf.give(bpf.RET_KILL_PROCESS))
    program += bpf.when_at_least(HIGHEST_KNOWN + 1, bpf.give(missing))
    for name in (*ALLOWED, *(gpus.CALLS if uses_gpus else ())):
        if name in table:
            program += bpf.when_equal(table[name], bpf.give(allow))
    for name, condition in conditions.items():
        if name in table:
            program += bpf.when_equal(table[name], condition)
    return program + bpf.give(refuse)


def _ioctl_of_gpus() -> bpf.Program:
    """Returns code that allows the ioctls of the GPU driver. For other ioctls, the filter continues with the next
    condition.
    """
    passes = bpf.give(bpf.RET_ALLOW)
    return [
        *bpf.when_masked(bpf.argument(1), gpus.IOCTL_TYPE_MASK, gpus.IOCTL_TYPE, passes),
        *bpf.when_masked(bpf.argument(1), 0xFFFF_FFFF & ~(gpus.UVM_IOCTLS_BELOW - 1), 0, passes),
        *bpf.load(bpf.argument(1)),
        *(instruction for number in gpus.UVM_IOCTLS for instruction in bpf.when_equal(number, passes)),
    ]


def _connected() -> dict[str, bpf.Program]:
    """Returns conditions for calls on connected sockets.

    `sendmsg` is not among them, because it takes an address from memory, which a filter cannot read. `sendto` may not
    connect a socket (MSG_FASTOPEN), and its address, a pointer in two words, must be null.
    """
    refuse, allow = bpf.give(bpf.RET_ERRNO | errno.EPERM), bpf.give(bpf.RET_ALLOW)
    upper = bpf.argument(4) + 4
    return {
        "recvfrom": allow,
        "recvmsg": allow,
        "sendto": [
            *bpf.when_masked(bpf.argument(3), socket.MSG_FASTOPEN, socket.MSG_FASTOPEN, refuse),
            *bpf.when_masked(
                bpf.argument(4), 0xFFFF_FFFF, 0, [*bpf.when_masked(upper, 0xFFFF_FFFF, 0, allow), *refuse]
            ),
            *refuse,
        ],
    }


def _open(flags: int) -> bpf.Program:
    # Landlock checks rights by the access mode; before version 3, it does not check truncation. O_RDONLY | O_TRUNC
    # truncates a file. So does access mode 3 ("for ioctl only"), which allows neither reading nor writing.
    refuse = bpf.give(bpf.RET_ERRNO | errno.EPERM)
    return [
        *bpf.when_masked(bpf.argument(flags), _O_ACCMODE, _O_ACCMODE, refuse),
        *bpf.when_masked(bpf.argument(flags), _O_ACCMODE | _O_TRUNC, os.O_RDONLY | _O_TRUNC, refuse),
        *bpf.give(bpf.RET_ALLOW),
    ]


_SET_MODE_FILTER = 1
_GET_ACTION_AVAIL = 2
_FILTER_FLAG_TSYNC = 1


def is_available() -> bool:
    """Returns true if this kernel can filter system calls with the actions that the filter uses."""
    try:
        action = struct.pack("=I", bpf.RET_KILL_PROCESS)
        syscall("seccomp", _GET_ACTION_AVAIL, 0, ctypes.create_string_buffer(action, len(action)))
    except OSError:
        return False
    return True


def install(
    *,
    threads: bool = True,
    execute: bool = False,
    places_threads: bool = False,
    uses_gpus: bool = False,
    connected: bool = False,
) -> None:
    """Installs the filter permanently for all threads of this process (TSYNC). Requires no_new_privs.

    Raises:
        OSError: the kernel has no seccomp, or a thread could not be synchronized.
    """
    program = build(
        architecture(),
        os.getpid(),
        threads=threads,
        execute=execute,
        places_threads=places_threads,
        uses_gpus=uses_gpus,
        connected=connected,
    )
    packed = b"".join(instruction.pack() for instruction in program)
    instructions = ctypes.create_string_buffer(packed, len(packed))
    fprog = struct.pack("@HP", len(program), ctypes.addressof(instructions))
    unsynchronized = syscall(
        "seccomp", _SET_MODE_FILTER, _FILTER_FLAG_TSYNC, ctypes.create_string_buffer(fprog, len(fprog))
    )
    if unsynchronized:
        raise OSError(errno.EBUSY, f"thread {unsynchronized} already has a filter of its own")
