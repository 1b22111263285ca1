"""The two ways to use the sandbox: running a role of Octet's compiler, or running a third-party program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.compiler.sandbox.messages import clean
from service.compiler.sandbox.policy import Access, Limits
from service.compiler.sandbox.process import Child, Fork
from service.compiler.sandbox.report import EXECUTE
from service.compiler.sandbox.watch import BUG, REPORT_IT
from service.compiler.sandbox.zygotes import FORKED, ZYGOTES
from service.core.errors import OctetError

_logger = logging.getLogger(__name__)
_LINES, _LINE_CHARACTERS = 60, 200  # the part of a child's log that is reported: its end, which contains the traceback


def run_child(
    role: str,
    request: Mapping[str, Any],
    *,
    access: Access,
    limits: Limits,
    on_message: Callable[[dict[str, Any]], None] | None = None,
    poll: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
    allow_unsandboxed: bool = False,
    unsandboxed: bool = False,
    fork: Fork | None = None,
    handlers: Path | None = None,
    on_cpu: Callable[[float], None] = lambda cpu_s: None,
) -> dict[str, Any]:
    """Runs `role` (one of `compiler.children.child.ROLES`) in its own sandboxed process and returns its result.

    Args:
        role: the role that the child runs.
        request: JSON that is passed to the role.
        access: the files that the child may access, in addition to installed code.
        limits: the resources that the child may use.
        on_message: called with the child's at, stage, make, discard and log messages after they were checked. If it
            raises an exception, the child is killed. If the child fails, its traceback is passed as log messages too;
            without `on_message`, the traceback is written to Python's log.
        poll: called about every 100 ms. If it raises an exception (`BuildCanceled`), the child is killed.
        env: environment variables in addition to a minimal set. The child does not inherit the variables of this
            process.
        allow_unsandboxed: run the child even if the kernel has no Landlock or seccomp.
        unsandboxed: run the child without any sandbox, with all rights of this process.
        fork: creates the child process; by default a new interpreter is started, or a zygote forks.
        handlers: a Python file whose functions are the roles. Only tests use it.
        on_cpu: called with the processor time of the child after it has ended, for any reason.

    Raises:
        OctetError: an error that the child reported about the input, or `BuildFailed`.
        BuildCrashed: the child was killed by a signal, or ended without a result.
        BuildTimedOut: the child reached a limit of wall-clock time or processor time.
        OutOfMemory: the child ran out of memory.
        BuildFailed: the child reached another limit, or violated the protocol.
        SandboxUnavailable: the kernel lacks a feature, and `allow_unsandboxed` is False.
    """
    setup = {"request": request, "handlers": None if handlers is None else str(handlers)}
    if role in FORKED and fork is None:
        ZYGOTES.warm().wait(poll)
    child = Child(role, setup, access, limits, env or {}, allow_unsandboxed, unsandboxed, fork)
    try:
        with child:
            conversation = child.conversation
            try:
                termination = child.run(on_message or (lambda message: None), poll)
            except OctetError as error:
                conversation.place(error)
                raise
    finally:
        on_cpu(child.cpu_s)
    if termination.status == 0 and conversation.error is None and conversation.result is not None:
        return conversation.result
    if termination.status < 0:
        # An attacker may crash children to learn addresses, and later forks of the same zygote would have the same
        # ones.
        ZYGOTES.close()
    failure = conversation.error if termination.status == 0 else None
    failure = failure or conversation.place(termination.explain(f"the {role} process", limits))
    if failure.hint in (BUG, REPORT_IT):
        _pass_on(termination.log, on_message)
    raise failure


def _pass_on(log: str, on_message: Callable[[dict[str, Any]], None] | None) -> None:
    """Passes the end of a failed child's log to `on_message`, or writes it to Python's log. The upload may control the
    log's content, so each line is cleaned.
    """
    for line in log.splitlines()[-_LINES:]:
        indent = min(len(line) - len(line.lstrip()), 12)
        text = " " * indent + clean(line, _LINE_CHARACTERS)
        if on_message is None:
            _logger.error("%s", text)
        else:
            on_message({"log": text})


def run_program(
    arguments: Sequence[str],
    *,
    access: Access,
    limits: Limits,
    poll: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
    allow_unsandboxed: bool = False,
    on_cpu: Callable[[float], None] = lambda cpu_s: None,
) -> tuple[int, str]:
    """Runs a program in the sandbox. `arguments[0]` is its path, which must be in `access.executable`. `on_cpu` is that
    of `run_child`.

    Returns:
        The exit status, and the end of what the program wrote to stdout and stderr.

    Raises:
        BuildCrashed: the program was killed by a signal or could not be started.
        BuildTimedOut, OutOfMemory, BuildFailed, SandboxUnavailable: as in `run_child`.
    """
    setup = {"request": {"arguments": list(arguments)}, "handlers": None}
    child = Child(EXECUTE, setup, access, limits, env or {}, allow_unsandboxed)
    try:
        with child:
            termination = child.run(lambda message: None, poll)
    finally:
        on_cpu(child.cpu_s)
    if child.conversation.error is not None:
        raise child.conversation.error
    if termination.status < 0 or not child.conversation.locked:
        raise termination.explain(Path(arguments[0]).name, limits)
    return termination.status, termination.log
