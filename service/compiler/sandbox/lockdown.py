"""The child sandboxes itself. Every step is irreversible, inherited by threads, and holds for root too.

Files are closed off before the task's modules are imported, system calls after. Landlock binds no thread that already
runs, so it must come first, while there is one; imports then read nothing but installed code. The filter comes last
because imports legitimately do more than tasks may; it reaches every thread (TSYNC).
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from service.compiler.sandbox import cards, landlock, seccomp
from service.compiler.sandbox.check import require
from service.compiler.sandbox.kernel import drop_capabilities, prctl
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Access, Limits, system_rules
from service.core.own_threads import own_threads
from service.core.scheduling import step_back

_PR_SET_NO_NEW_PRIVS = 38
# Between the catchable signal and the kill when the processor time is used up.
_CPU_GRACE_S = 2

# Landlock knows /proc/self by its inode, which the kernel makes anew once it has dropped the cached directory entry;
# an open descriptor keeps the entry.
_pinned: list[int] = []


def close_files(access: Access, limits: Limits, *, allow_unsandboxed: bool) -> None:
    """Limits, no privileges, and no files but those of `access` and the installed code. Call with one thread only.

    Raises:
        SandboxUnavailable: the kernel lacks Landlock or seccomp, and `allow_unsandboxed` is False.
    """
    require(allow_unsandboxed=allow_unsandboxed)
    _limit(limits)
    # Root could otherwise raise its limits again. no_new_privs keeps exec from bringing them back.
    drop_capabilities()
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if landlock.abi() == 0:
        return
    threads = own_threads()
    if threads > 1:
        raise RuntimeError(f"{threads} threads run already, and Landlock would bind one of them")
    _pinned.append(os.open("/proc/self", os.O_PATH | os.O_CLOEXEC))
    landlock.restrict([*system_rules(), *access.rules(), *(cards.rules() if limits.cards else ())])


def close_calls(limits: Limits, *, execute: bool = False) -> None:
    """No system calls but those that computing needs; after the imports."""
    if seccomp.is_available():
        seccomp.install(
            threads=limits.threads > 1,
            execute=execute,
            places_threads=limits.places_threads,
            uses_cards=limits.cards,
        )


def _limit(limits: Limits) -> None:
    step_back(limits.nice)
    if limits.processors:
        with contextlib.suppress(OSError):  # they were taken from us meanwhile
            os.sched_setaffinity(0, limits.processors)
    cpu_s = max(1, round(limits.cpu_s))
    for what, soft, hard in (
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + _CPU_GRACE_S),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, *(2 * (UNLIMITED_BYTES,) if limits.cards else (0, 0))),  # what cards copy from stays
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        # Not RLIMIT_NPROC: it counts all tasks of the user on the machine, other containers' included. fork is
        # refused by the filter, and the parent watches the number of threads.
    ):
        ceiling = resource.getrlimit(what)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(what, (soft, hard))
    with contextlib.suppress(OSError):  # if memory runs out, the kernel should take this process and not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
