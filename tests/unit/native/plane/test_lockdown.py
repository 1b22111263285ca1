"""Tests the data plane's system call filter call by call, with an interpreter in place of the kernel."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass

import pytest

from service.compiler.sandbox import bpf
from service.compiler.sandbox.kernel import architecture
from tests.support.bpf_machine import run_filter
from tests.support.kernel_headers import syscall_numbers
from tests.support.native import PRODUCTS, ROOT, build, built_program

_PLANE = ROOT / "service" / "native" / "plane"
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OWN = 4711
ALLOW, EPERM, ENOSYS = bpf.RET_ALLOW, bpf.RET_ERRNO | errno.EPERM, bpf.RET_ERRNO | errno.ENOSYS

THREAD = 0x3D0F00  # flags with which glibc creates a thread
CLONE_NEWUSER, CLONE_NEWNET, CLONE_THREAD, CLONE_PARENT = 0x10000000, 0x40000000, 0x00010000, 0x00008000
MSG_NOSIGNAL, MSG_FASTOPEN = 0x4000, 0x20000000
F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETFL, F_NOTIFY, F_SETLEASE = 8, 10, 15, 4, 1026, 1024
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_SECCOMP, PR_SET_PTRACER = 1, 4, 15, 22, 0x59616D61
ANY_PLACE = 0x7FFF_0000_0000  # an address whose lower half is zero
REFUSED = """
    socket connect bind listen accept sendmmsg ptrace process_vm_readv process_vm_writev pidfd_open pidfd_getfd
    pidfd_send_signal kill tkill rt_sigqueueinfo rt_tgsigqueueinfo execve execveat fork vfork mount unshare setns bpf
    io_uring_setup io_uring_enter io_uring_register keyctl add_key userfaultfd perf_event_open memfd_create openat2
    unlink unlinkat rename mkdir mkdirat truncate ftruncate creat linkat symlinkat fchmod fchown setxattr utimensat
    pwrite64 pwritev shmget msgget semget mq_open setuid setgroups capset setsid setpgid setpriority sched_setscheduler
    timer_create setitimer ioctl personality name_to_handle_at open_by_handle_at process_madvise splice tee vmsplice
    landlock_restrict_self seccomp dup dup2 dup3 chdir fchdir inotify_init1 fanotify_init
"""


@dataclass(frozen=True)
class Filter:
    """The filter of a data plane that was built for `machine`, with and without GPUs."""

    machine: str
    program: bpf.Program
    with_gpus: bpf.Program

    def verdict(self, name: str, *arguments: int, with_gpus: bool = False) -> int:
        program = self.with_gpus if with_gpus else self.program
        return run_filter(program, _AUDIT[self.machine], syscall_numbers(self.machine)[name], arguments)


# Compiling for another machine first compiles the C++ library, which takes two minutes once.
@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=() if each == architecture() else pytest.mark.slow) for each in _AUDIT],
)
def calls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filter:
    machine, emulator = str(request.param), []
    if machine == architecture():
        probe = built_program("lockdown_probe")
    else:
        found = shutil.which(f"qemu-{machine}-static")
        if found is None:
            pytest.skip(f"NOT TESTED for {machine}: there is no qemu-{machine}-static (qemu-user-static)")
        emulator = [found]
        sources = (_PLANE / "control" / "system_call_filter.cc", ROOT / "tests/native/plane/lockdown_probe.cc")
        compiler = (*PRODUCTS, "-target", f"{machine}-linux-musl", "-static")
        options = ("-std=c++20", f"-I{_PLANE}", f"-I{_PLANE.parent}")
        probe = build(sources, tmp_path_factory.mktemp("lockdown") / "probe", options, compiler=compiler)

    def printed(*more: str) -> bpf.Program:
        command = [*emulator, str(probe), str(_OWN), *more]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        return [bpf.Instruction(*map(int, line.split())) for line in lines]

    return Filter(machine, printed(), printed("cards"))


@pytest.mark.parametrize("name", REFUSED.split())
def test_unlisted_calls_are_refused(calls: Filter, name: str) -> None:
    if name in syscall_numbers(calls.machine):
        assert calls.verdict(name) == EPERM


def test_calls_of_another_architecture_kill(calls: Filter) -> None:
    others = {0x40000003, *_AUDIT.values()} - {_AUDIT[calls.machine]}
    assert {run_filter(calls.program, other, 1) for other in others} == {bpf.RET_KILL_PROCESS}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        # Signals and limits are permitted only for the process itself.
        ("tgkill", (_OWN,), ALLOW),
        ("tgkill", (_OWN + 1,), EPERM),
        ("prlimit64", (0,), ALLOW),
        ("prlimit64", (_OWN,), ALLOW),
        ("prlimit64", (_OWN + 1,), EPERM),
        # clone is permitted only for creating threads.
        ("clone", (THREAD,), ALLOW),
        ("clone", (CLONE_THREAD,), EPERM),
        ("clone", (17,), EPERM),
        ("clone", (THREAD | CLONE_NEWUSER,), EPERM),
        ("clone", (THREAD | CLONE_NEWNET,), EPERM),
        ("clone", (THREAD | CLONE_PARENT,), EPERM),
        ("clone3", (), ENOSYS),
        # Rights that were given up cannot be regained.
        ("prctl", (PR_SET_NAME,), ALLOW),
        ("prctl", (PR_SET_PDEATHSIG,), EPERM),
        ("prctl", (PR_SET_DUMPABLE, 1), EPERM),
        ("prctl", (PR_SET_PTRACER,), EPERM),
        ("prctl", (PR_SET_SECCOMP,), EPERM),
        # Descriptors cannot signal other processes.
        ("fcntl", (3, F_SETFL), ALLOW),
        *(("fcntl", (3, command), EPERM) for command in (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_NOTIFY, F_SETLEASE)),
        # Data is only sent to the peer of a connected socket.
        ("sendmsg", (3, 1, MSG_NOSIGNAL), ALLOW),
        ("sendmsg", (3, 1, MSG_NOSIGNAL | MSG_FASTOPEN), EPERM),
        ("sendto", (3, 1, 1, MSG_NOSIGNAL, 0), ALLOW),
        ("sendto", (3, 1, 1, MSG_NOSIGNAL, 4096), EPERM),
        ("sendto", (3, 1, 1, MSG_NOSIGNAL, ANY_PLACE), EPERM),
        ("sendto", (3, 1, 1, MSG_FASTOPEN, 0), EPERM),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK), ALLOW),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM), EPERM),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_SEQPACKET), EPERM),
        ("socketpair", (socket.AF_INET, socket.SOCK_STREAM), EPERM),
        ("setsockopt", (3, socket.IPPROTO_TCP), ALLOW),
        ("setsockopt", (3, socket.SOL_SOCKET), ALLOW),
        ("setsockopt", (3, socket.IPPROTO_IP), EPERM),
        # Files can be opened, but not truncated.
        ("openat", (-100, 1, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY), ALLOW),
        ("openat", (-100, 1, os.O_RDONLY | os.O_TRUNC), EPERM),
        ("openat", (-100, 1, 3), EPERM),
        ("openat", (-100, 1, 3 | os.O_TRUNC), EPERM),
    ],
)
def test_arguments_determine_the_verdict(calls: Filter, name: str, arguments: tuple[int, ...], expected: int) -> None:
    assert calls.verdict(name, *arguments) == expected


def test_the_older_call_for_opening_files_is_restricted_too(calls: Filter) -> None:
    if "open" in syscall_numbers(calls.machine):
        assert calls.verdict("open", 1, os.O_RDONLY) == ALLOW
        assert calls.verdict("open", 1, os.O_RDONLY | os.O_TRUNC) == EPERM


def test_gpu_devices_may_be_commanded(calls: Filter) -> None:
    for command in (0xC020462A, 0x3000_0001, 0x3000_0002, 27, 75):  # NV_ESC_RM_CONTROL; UVM_…
        assert calls.verdict("ioctl", 3, command, with_gpus=True) == ALLOW
    for command in (0x5412, 0x5401, 0x8933):  # TIOCSTI, TCGETS, SIOCGIFINDEX
        assert calls.verdict("ioctl", 3, command, with_gpus=True) == EPERM
    for name in ("mlock", "dup"):
        assert calls.verdict(name, with_gpus=True) == ALLOW


_FOR_CARDS = {"ioctl", "memfd_create", "dup"}


@pytest.mark.parametrize("name", sorted({*REFUSED.split()} - _FOR_CARDS))
def test_refused_calls_are_refused_with_gpus_too(calls: Filter, name: str) -> None:
    if name in syscall_numbers(calls.machine):
        assert calls.verdict(name, with_gpus=True) == EPERM
