"""The steps by which a child sandboxes itself. The restrictions cannot be undone, threads inherit them, and they also
apply to root.

File access is restricted before the modules of the child's role are imported, and system calls are restricted
afterwards. Landlock does not apply to other threads that are already running, so it must come first, while there is
only one thread. Imports can then read only installed code. The seccomp filter comes last, because imports need more
system calls than roles. It applies to every thread (TSYNC).
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from service.compiler.sandbox import gpus, landlock, seccomp
from service.compiler.sandbox.check import require
from service.compiler.sandbox.kernel import drop_capabilities, prctl
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Access, Limits, system_rules
from service.core.system.own_threads import own_threads
from service.core.system.scheduling import lower_priority

_PR_SET_NO_NEW_PRIVS = 38
# When a child's processor time is used up, it gets SIGXCPU, which it can catch, and after this much more time SIGKILL.
_CPU_GRACE_S = 2

# Descriptors that keep the allowed files of /proc open. A Landlock rule identifies a file by its inode. Without an open
# descriptor, the kernel may drop an inode of /proc from its cache and later create another one, which no rule allows.
_pinned: list[int] = []


def close_files(access: Access, limits: Limits, *, allow_unsandboxed: bool) -> None:
    """Sets resource limits, drops privileges, and denies access to all files except those of `access` and installed
    code.

    The process must have only one thread.

    Raises:
        SandboxUnavailable: the kernel lacks Landlock or seccomp, and `allow_unsandboxed` is False.
    """
    require(allow_unsandboxed=allow_unsandboxed)
    _limit(limits)
    # Without this, a child that runs as root could raise its limits again. With no_new_privs, exec cannot restore the
    # capabilities.
    drop_capabilities()
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if landlock.abi() == 0:
        return
    threads = own_threads()
    if threads > 1:
        raise RuntimeError(f"the process has {threads} threads, and Landlock would apply to only one of them")
    rules = [*system_rules(), *access.rules(), *(gpus.rules() if limits.cards else ())]
    _pinned.extend(os.open(path, os.O_PATH | os.O_CLOEXEC) for path, _ in rules if path.is_relative_to("/proc"))
    landlock.restrict(rules)


def close_calls(limits: Limits, *, execute: bool = False) -> None:
    """Denies all system calls that are not needed to compute. Call it after the imports."""
    if seccomp.is_available():
        seccomp.install(
            threads=limits.threads > 1,
            execute=execute,
            places_threads=limits.places_threads,
            uses_gpus=limits.cards,
            connected=limits.connected,
        )


def _limit(limits: Limits) -> None:
    lower_priority(limits.nice)
    if limits.processors:
        with contextlib.suppress(OSError):  # some of these processors may no longer be available
            os.sched_setaffinity(0, limits.processors)
    cpu_s = max(1, round(limits.cpu_s))
    for what, soft, hard in (
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + _CPU_GRACE_S),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_CORE, 0, 0),
        # copies to and from GPUs need locked memory
        (resource.RLIMIT_MEMLOCK, *(2 * (UNLIMITED_BYTES,) if limits.cards else (0, 0))),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        # RLIMIT_NPROC is not used, because it counts all tasks of the user on the machine, including those in other
        # containers. The filter denies fork, and the parent limits the number of threads.
    ):
        ceiling = resource.getrlimit(what)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(what, (soft, hard))
    with contextlib.suppress(OSError):  # if memory runs out, the kernel should kill this process rather than the server
        Path("/proc/self/oom_score_adj").write_text("1000")
