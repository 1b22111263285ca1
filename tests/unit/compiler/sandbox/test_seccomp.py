"""The filter's result for each call, on both architectures. An interpreter in the test runs the filter instead of the
kernel.
"""

import errno
import os
import socket

import pytest

from service.compiler.sandbox import bpf, seccomp
from service.compiler.sandbox.syscalls import HIGHEST_KNOWN, NUMBERS
from tests.support.bpf_machine import run_filter
from tests.support.kernel_headers import syscall_numbers

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
AUDIT_I386 = 0x40000003
PID = 4711
ALLOW = bpf.RET_ALLOW
EPERM = bpf.RET_ERRNO | errno.EPERM
ENOSYS = bpf.RET_ERRNO | errno.ENOSYS
ENOTTY = bpf.RET_ERRNO | errno.ENOTTY
KILL = bpf.RET_KILL_PROCESS

GLIBC_THREAD = 0x3D0F00  # CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM | SETTLS | PARENT_SETTID | CHILD_CLEARTID
CLONE_NEWUSER = 0x10000000
CLONE_PARENT = 0x00008000
CLONE_VFORK = 0x00004000
CLONE_PTRACE = 0x00002000
CLONE_THREAD = 0x00010000
CLONE_VM = 0x00000100

DANGEROUS = """
    socket socketpair connect bind listen accept accept4 sendto sendmsg recvfrom ptrace process_vm_readv
    process_vm_writev pidfd_open pidfd_getfd pidfd_send_signal tkill rt_sigqueueinfo rt_tgsigqueueinfo execveat
    execve mount umount2 pivot_root chroot unshare setns bpf io_uring_setup io_uring_enter keyctl add_key
    userfaultfd perf_event_open init_module finit_module delete_module kexec_load reboot swapon name_to_handle_at
    open_by_handle_at personality memfd_create memfd_secret fchmod fchmodat fchmodat2 fchown fchownat setxattr
    fsetxattr utimensat truncate symlinkat linkat mknodat shmget msgget semget mq_open setuid setgid setgroups
    capset setsid setpgid setpriority sched_setscheduler ioprio_set inotify_init1 fanotify_init fsopen open_tree
    move_mount splice tee vmsplice quotactl acct syslog settimeofday clock_settime adjtimex sethostname seccomp
    process_madvise landlock_restrict_self pkey_alloc mlockall migrate_pages move_pages kcmp lookup_dcookie chdir
    fchdir flock timer_create timer_settime timer_delete setitimer
"""

both = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


def verdict(machine: str, name: str, *arguments: int, threads: bool = True, execute: bool = False) -> int:
    program = seccomp.build(machine, PID, threads=threads, execute=execute)
    return run_filter(program, AUDIT[machine], syscall_numbers(machine)[name], arguments)


@both
def test_only_listed_calls_pass(machine: str) -> None:
    program = seccomp.build(machine, PID)
    passed = {
        name
        for name, number in syscall_numbers(machine).items()
        if run_filter(program, AUDIT[machine], number) == ALLOW
    }
    # All arguments are zero here. Calls in `ALLOWED` are allowed with any arguments. Of the calls whose arguments are
    # checked, the ones listed here are allowed with zeros; others, such as `kill`, are not.
    assert passed - set(seccomp.ALLOWED) == {"open", "openat", "prlimit64", "sched_setaffinity", "fcntl"} & set(
        syscall_numbers(machine)
    )


@both
@pytest.mark.parametrize(
    "name",
    DANGEROUS.split(),
)
def test_dangerous_calls_are_refused(machine: str, name: str) -> None:
    assert verdict(machine, name) == EPERM


@both
def test_calls_newer_than_the_table_look_unimplemented(machine: str) -> None:
    program = seccomp.build(machine, PID)
    assert run_filter(program, AUDIT[machine], HIGHEST_KNOWN + 1) == ENOSYS
    assert run_filter(program, AUDIT[machine], 0x3FFF_FFFF) == ENOSYS


@both
@pytest.mark.parametrize("number", [0x4000_0000, 0x4000_0000 + 59, 0xFFFF_FFFF])
def test_x32_calls_kill(machine: str, number: int) -> None:
    assert run_filter(seccomp.build(machine, PID), AUDIT[machine], number) == KILL


@both
def test_calls_of_another_architecture_kill(machine: str) -> None:
    other = AUDIT["aarch64" if machine == "x86_64" else "x86_64"]
    program = seccomp.build(machine, PID)
    for architecture in (AUDIT_I386, other):
        assert run_filter(program, architecture, syscall_numbers(machine)["read"]) == KILL


@both
def test_threads_may_be_started(machine: str) -> None:
    assert verdict(machine, "clone", GLIBC_THREAD) == ALLOW


@both
@pytest.mark.parametrize(
    "flags",
    [
        17,  # SIGCHLD: fork.
        17 | CLONE_VM | CLONE_VFORK,  # vfork and posix_spawn.
        GLIBC_THREAD | CLONE_NEWUSER,
        GLIBC_THREAD | CLONE_PARENT,
        GLIBC_THREAD | CLONE_PTRACE,
        GLIBC_THREAD | CLONE_VFORK,
        GLIBC_THREAD & ~CLONE_THREAD,
        GLIBC_THREAD & ~CLONE_VM,
        17 | (GLIBC_THREAD << 32),  # the kernel and the filter read only the low half
    ],
)
def test_processes_may_not_be_started(machine: str, flags: int) -> None:
    assert verdict(machine, "clone", flags) == EPERM


def test_fork_and_vfork_are_refused() -> None:
    assert verdict("x86_64", "fork") == verdict("x86_64", "vfork") == EPERM


@both
def test_clone3_looks_unimplemented_so_that_libc_uses_clone(machine: str) -> None:
    assert verdict(machine, "clone3") == ENOSYS


@both
def test_without_threads_nothing_may_be_cloned(machine: str) -> None:
    assert verdict(machine, "clone", GLIBC_THREAD, threads=False) == EPERM


@both
def test_execve_is_for_the_execute_role_only(machine: str) -> None:
    assert verdict(machine, "execve", execute=True) == ALLOW
    assert verdict(machine, "execve") == EPERM
    assert verdict(machine, "execveat", execute=True) == EPERM


@both
@pytest.mark.parametrize("name", ["kill", "tgkill"])
@pytest.mark.parametrize(("pid", "expected"), [(PID, ALLOW), (PID + 1, EPERM), (0, EPERM), (-1, EPERM), (-PID, EPERM)])
def test_a_child_may_signal_only_itself(machine: str, name: str, pid: int, expected: int) -> None:
    assert verdict(machine, name, pid) == expected


@both
@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity"])
@pytest.mark.parametrize(("pid", "expected"), [(PID, ALLOW), (0, ALLOW), (1, EPERM), (PID + 1, EPERM)])
def test_a_child_may_change_only_its_own_limits_and_affinity(machine: str, name: str, pid: int, expected: int) -> None:
    assert verdict(machine, name, pid) == expected


@both
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (os.O_RDONLY, ALLOW),
        (os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, ALLOW),
        (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, ALLOW),
        (os.O_RDWR | os.O_TRUNC, ALLOW),
        (os.O_RDONLY | os.O_TRUNC, EPERM),
        (os.O_RDONLY | os.O_TRUNC | os.O_CREAT, EPERM),
        (os.O_ACCMODE, EPERM),
        (os.O_ACCMODE | os.O_TRUNC, EPERM),
    ],
)
def test_files_that_may_not_be_written_cannot_be_truncated(machine: str, flags: int, expected: int) -> None:
    assert verdict(machine, "openat", 0, 0, flags) == expected
    if "open" in syscall_numbers(machine):
        assert verdict(machine, "open", 0, flags) == expected


@both
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("prctl", (15,), ALLOW),  # PR_SET_NAME
        ("prctl", (51,), ALLOW),  # PR_SVE_GET_VL
        ("prctl", (50,), EPERM),  # PR_SVE_SET_VL
        ("prctl", (64,), ALLOW),  # PR_SME_GET_VL
        ("prctl", (63,), EPERM),  # PR_SME_SET_VL
        ("prctl", (1,), EPERM),  # PR_SET_PDEATHSIG is denied, because the process must end with its parent.
        ("prctl", (4,), EPERM),  # PR_SET_DUMPABLE
        ("prctl", (24,), EPERM),  # PR_CAPBSET_DROP
        ("fcntl", (3, 1030), ALLOW),  # F_DUPFD_CLOEXEC
        ("fcntl", (3, 8), EPERM),  # F_SETOWN
        ("fcntl", (3, 15), EPERM),  # F_SETOWN_EX
        ("fcntl", (3, 1031), EPERM),  # F_SETPIPE_SZ
        ("ioctl", (0, 0x5401), ALLOW),  # TCGETS: isatty.
        ("ioctl", (0, 0x5412), ENOTTY),  # TIOCSTI, which inserts input into a terminal, is denied.
        ("ioctl", (0, 0x541C), ENOTTY),  # TIOCLINUX
    ],
)
def test_only_listed_commands_of_a_call_are_allowed(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    assert verdict(machine, name, *arguments) == expected


@both
def test_every_allowed_call_has_a_number(machine: str) -> None:
    assert set(seccomp.ALLOWED) <= NUMBERS.keys()


@both
def test_the_kernel_accepts_the_filter(machine: str) -> None:
    program = seccomp.build(machine, PID, execute=True)
    assert len(program) <= 4096  # BPF_MAXINSNS
    for at, instruction in enumerate(program):
        assert max(instruction.jt, instruction.jf) <= 255
        assert at + 1 + max(instruction.jt, instruction.jf) <= len(program)
        assert len(instruction.pack()) == 8
    assert program[-1].code == bpf.RET


@both
def test_a_child_that_places_threads_may_set_the_affinity_of_any_thread(machine: str) -> None:
    program, number = seccomp.build(machine, PID, places_threads=True), syscall_numbers(machine)["sched_setaffinity"]
    assert run_filter(program, AUDIT[machine], number, (PID + 1,)) == ALLOW
    assert verdict(machine, "sched_setaffinity", PID + 1) == EPERM


@both
def test_a_child_that_uses_gpus_may_control_their_devices(machine: str) -> None:
    program, number = seccomp.build(machine, PID, uses_gpus=True), syscall_numbers(machine)["ioctl"]

    def verdict_of(command: int) -> int:
        return run_filter(program, AUDIT[machine], number, (3, command))

    of_control, of_unified_memory = 0xC020462A, (0x3000_0001, 0x3000_0002, 27, 75)  # NV_ESC_RM_CONTROL; UVM_…
    for command in (of_control, *of_unified_memory):
        assert verdict_of(command) == ALLOW
        assert verdict(machine, "ioctl", 3, command) != ALLOW
    assert verdict_of(0x5412) != ALLOW  # TIOCSTI
    assert verdict_of(0x5413) == ALLOW
    assert run_filter(program, AUDIT[machine], syscall_numbers(machine)["mlock"]) == ALLOW
    assert verdict(machine, "mlock") == EPERM
    assert verdict(machine, "socket", socket.AF_UNIX, socket.SOCK_SEQPACKET) == EPERM


@both
def test_a_child_that_uses_gpus_may_open_only_unix_sockets_that_it_cannot_connect(machine: str) -> None:
    program, numbers = seccomp.build(machine, PID, uses_gpus=True), syscall_numbers(machine)

    def verdict_of(name: str, *arguments: int) -> int:
        return run_filter(program, AUDIT[machine], numbers[name], arguments)

    kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
    assert verdict_of("socket", socket.AF_UNIX, kind) == ALLOW
    assert verdict_of("socket", socket.AF_INET, kind) == EPERM
    assert verdict_of("socket", socket.AF_UNIX, socket.SOCK_STREAM) == EPERM
    assert verdict_of("setsockopt", 3, socket.SOL_SOCKET) == ALLOW
    assert verdict_of("setsockopt", 3, socket.IPPROTO_TCP) == EPERM
    assert verdict_of("connect", 3) == bpf.RET_ERRNO | errno.ENOENT
