"""The two ways to use the sandbox: a role of Octet's compiler, which answers, or a third-party program."""

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
_LINES, _LINE_CHARACTERS = 60, 200  # of a child's log, at its end: a traceback and what led to it


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
    """Runs `role` (of `compiler.children.child.ROLES`) in a sandboxed process of its own and returns its result.

    Args:
        role: what the child is to do.
        request: handed to the role as it is; JSON.
        access: files that it may touch, besides installed code.
        limits: what it may use up.
        on_message: gets the child's at, stage, make, discard and log messages, checked; may raise, which ends the
            child. Of an error that is to be reported it gets the traceback too, as log messages; where there is no
            `on_message`, Python's log does.
        poll: called about every 100 ms; may raise (`BuildCanceled`), which ends the child.
        env: environment variables, on top of a minimal set; nothing is inherited.
        allow_unsandboxed: go on where the kernel lacks Landlock or seccomp.
        unsandboxed: take nothing from the child: it may do all that this process may.
        fork: makes the child; by default it is started anew, or forked from a zygote.
        handlers: a Python file whose functions are the roles. For tests; nothing else passes it.
        on_cpu: called with the processor time of the child, when it has ended, however that came.

    Raises:
        OctetError: the child's own error (about the input, or `BuildFailed`).
        BuildCrashed: it died of a signal, or ended without a result.
        BuildTimedOut: it ran out of time, on the clock or of the processor.
        OutOfMemory: it ran out of memory.
        BuildFailed: it used too much of something else, or did not keep to the protocol.
        SandboxUnavailable: the kernel lacks something, and `allow_unsandboxed` is False.
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
        ZYGOTES.close()  # the crash may have been an attempt to learn addresses, which its successors would share
    failure = conversation.error if termination.status == 0 else None
    failure = failure or conversation.place(termination.explain(f"the {role} process", limits))
    if failure.hint in (BUG, REPORT_IT):
        _pass_on(termination.log, on_message)
    raise failure


def _pass_on(log: str, on_message: Callable[[dict[str, Any]], None] | None) -> None:
    """The end of a child's log, for whoever reports its error; it may be the upload's word."""
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
) -> tuple[int, str]:
    """Runs a program in the sandbox; `arguments[0]` is its path and must be in `access.executable`.

    Returns:
        Its exit status and the end of what it wrote to stdout and stderr.

    Raises:
        BuildCrashed: it died of a signal or could not be started.
        BuildTimedOut, OutOfMemory, BuildFailed, SandboxUnavailable: as `run_child`.
    """
    setup = {"request": {"arguments": list(arguments)}, "handlers": None}
    with Child(EXECUTE, setup, access, limits, env or {}, allow_unsandboxed) as child:
        termination = child.run(lambda message: None, poll)
    if child.conversation.error is not None:
        raise child.conversation.error
    if termination.status < 0 or not child.conversation.locked:
        raise termination.explain(Path(arguments[0]).name, limits)
    return termination.status, termination.log
