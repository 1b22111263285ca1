"""The two ways to use the sandbox: a role of Octet's compiler, which answers, or a third-party program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.compiler.sandbox.policy import Access, Limits
from service.compiler.sandbox.process import Child, Fork
from service.compiler.sandbox.report import EXECUTE
from service.compiler.sandbox.zygotes import FORKED, ZYGOTES
from service.core.errors import OctetError


def run_child(
    role: str,
    request: Mapping[str, Any],
    *,
    access: Access,
    limits: Limits,
    on_message: Callable[[dict[str, Any]], None] = lambda message: None,
    poll: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
    allow_unsandboxed: bool = False,
    unsandboxed: bool = False,
    fork: Fork | None = None,
    handlers: Path | None = None,
) -> dict[str, Any]:
    """Runs `role` (of `service.compiler.child.ROLES`) in a sandboxed process of its own and returns its result.

    Args:
        role: what the child is to do.
        request: handed to the role as it is; JSON.
        access: files that it may touch, besides installed code.
        limits: what it may use up.
        on_message: gets the child's at, stage, make, discard and log messages, checked; may raise, which ends the
            child.
        poll: called about every 100 ms; may raise (`BuildCanceled`), which ends the child.
        env: environment variables, on top of a minimal set; nothing is inherited.
        allow_unsandboxed: go on where the kernel lacks Landlock or seccomp.
        unsandboxed: take nothing from the child: it may do all that this process may.
        fork: makes the child; by default it is started anew, or forked from a zygote.
        handlers: a Python file whose functions are the roles. For tests; nothing else passes it.

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
    with Child(role, setup, access, limits, env or {}, allow_unsandboxed, unsandboxed, fork) as child:
        conversation = child.conversation
        try:
            termination = child.run(on_message, poll)
        except OctetError as error:
            conversation.place(error)
            raise
    if termination.status == 0 and conversation.error is not None:
        raise conversation.error
    if termination.status == 0 and conversation.result is not None:
        return conversation.result
    if termination.status < 0:
        ZYGOTES.close()  # the crash may have been an attempt to learn addresses, which its successors would share
    raise conversation.place(termination.explain(f"the {role} process", limits))


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
