"""The process that an upload is read in: `python -m service.compiler.children.child ROLE DESCRIPTOR PARENT_DEATH`.

Started by `sandbox.run_child`, or forked, with its orders on stdin and the pipe to report on as DESCRIPTOR. It closes
off all files but those it was given, imports the role's modules (ours, trusted; who forked it has done so before),
closes off system calls, and only then looks at the request.
"""

from __future__ import annotations

import errno
import faulthandler
import importlib
import json
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from service.compiler.locating import described
from service.compiler.sandbox import lockdown, parent_death
from service.compiler.sandbox.policy import Access, Limits
from service.compiler.sandbox.report import EXECUTE, Report
from service.compiler.sandbox.termination import is_out_of_memory, out_of_memory
from service.compiler.sandbox.watch import BUG, too_much_written
from service.compiler.sandbox.zygotes import ChildDescriptors
from service.core.errors import BuildFailed, InternalError, OctetError
from service.core.imports import without_torch

_MOST_REPORT_BYTES = 64 << 10
Handler = Callable[[Mapping[str, Any], Report], Mapping[str, Any]]

# role -> "package.module:function"
ROLES: Mapping[str, str] = {
    "import": "service.compiler.children.roles:import_role",
    "inspect": "service.compiler.children.roles:inspect_role",
    "passes": "service.compiler.children.roles:passes_role",
    "build": "service.compiler.children.roles:build_role",
    "kernel": "service.compiler.children.roles:kernel_role",
    "oracle": "service.compiler.children.roles:oracle_role",
    "padding": "service.compiler.children.roles:padding_role",
    "reference": "service.compiler.children.checking_roles:reference_role",
    "time": "service.compiler.children.checking_roles:time_role",
    "profile": "service.compiler.children.checking_roles:profile_role",
    "race": "service.compiler.children.checking_roles:race_role",
    "verify": "service.compiler.children.checking_roles:verify_role",
    "run": "service.compiler.children.running_roles:run_role",
    "bench": "service.compiler.children.running_roles:bench_role",
    "explain": "service.compiler.children.running_roles:explain_role",
    "channels": "service.compiler.children.observing_roles:channels_role",
    "extremes": "service.compiler.children.observing_roles:extremes_role",
    "histograms": "service.compiler.children.observing_roles:histograms_role",
    "compare": "service.compiler.children.observing_roles:compare_role",
    "moments": "service.compiler.children.observing_roles:moments_role",
    "pair": "service.compiler.children.observing_roles:pair_role",
    "switched": "service.compiler.children.observing_roles:switched_role",
    "quantize": "service.quantize.child:quantize_role",
}


def load(role: str) -> None:
    """Imports what `role` needs: before a process is forked for it. What is no role of ours is imported there."""
    if role in ROLES:
        importlib.import_module(ROLES[role].split(":")[0])


def become(
    role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str], keep: Collection[int] = ()
) -> None:
    """Sets up a forked process as `subprocess` would between fork and exec, and does `main`.

    Args:
        keep: descriptors that stay open besides `ends`, by their numbers.
    """
    os.chdir(directory)
    for source, place in ((ends.stdin, 0), (ends.log, 1), (ends.log, 2)):
        os.dup2(source, place)
    _close_all_but({0, 1, 2, ends.messages, ends.parent_death, *keep})
    # Those of the parent may stand for other descriptors, and hold what it has not written yet.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, 1, closefd=False) for number, mode in enumerate("rww"))
    os.environ.update(env)
    tempfile.tempdir = None  # it is determined again
    main(role, ends.messages, ends.parent_death)


def _close_all_but(kept: Iterable[int]) -> None:
    first = 0
    for descriptor in sorted(kept):
        if first < descriptor:  # of an empty range, close_range(2) would make one without end
            os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def main(role: str, descriptor: int, parent_death_end: int) -> None:
    """Does what it was told on stdin and exits; never returns.

    Args:
        role: one of `ROLES`, or `EXECUTE`.
        descriptor: to report on.
        parent_death_end: see `parent_death.die_with`.
    """
    faulthandler.enable()  # a native crash leaves the Python frames in the log
    os.set_inheritable(descriptor, False)
    report = Report(descriptor)
    orders = json.load(sys.stdin.buffer)
    parent_death.die_with(orders["parent"], parent_death_end)
    parent_death.die_after(orders["alone_s"])
    _close_stdin()
    limits = Limits(**orders["limits"])
    try:
        if not orders["unsandboxed"]:
            access = Access.from_json(orders["access"])
            lockdown.close_files(access, limits, allow_unsandboxed=orders["allow_unsandboxed"])
        if role == EXECUTE:
            _execute(orders, limits, report)
        if role != "reference":
            without_torch()
        handler = _handler(role, orders["handlers"])
        if not orders["unsandboxed"]:
            lockdown.close_calls(limits)
        report.locked()
        report.result(handler(orders["request"], report))
    except BaseException as error:
        traceback.print_exc()
        report.error(_explain(error, role, limits))
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: what libraries do at exit can only crash, and the scratch directory is the parent's to clean.
    os._exit(0)


def _handler(role: str, handlers: str | None) -> Handler:
    handler: Handler
    if handlers is not None:
        handler = runpy.run_path(handlers)[role]
    else:
        module, name = ROLES[role].split(":")
        handler = getattr(importlib.import_module(module), name)
    return handler


def _execute(orders: Mapping[str, Any], limits: Limits, report: Report) -> None:
    arguments = orders["request"]["arguments"]
    parent_death.alarm_after(orders["alone_s"])
    lockdown.close_calls(limits, execute=True)
    report.locked()
    os.execv(arguments[0], arguments)


def _close_stdin() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _explain(error: BaseException, role: str, limits: Limits) -> OctetError:
    """The error that is sent to the parent. The traceback goes to the log."""
    who = f"the {role} process"
    if isinstance(error, InternalError):
        error.hint, error.report = error.hint or BUG, _incident(role, error)
    if isinstance(error, OctetError):
        return error
    if isinstance(error, MemoryError) or is_out_of_memory(str(error)):
        return out_of_memory(who, limits)
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return too_much_written(limits)
    if isinstance(error, PermissionError) and error.filename is not None and os.geteuid() == 0:
        return BuildFailed(
            f"{who} may not read {error.filename}",
            hint="it gives up root's right to the files of others: run it as their owner, or let others read them",
        )
    return InternalError(described(error), hint=BUG, report=_incident(role, error))


def _incident(role: str, error: BaseException) -> dict[str, Any]:
    """`compiler.children.incident.report`, if this process has loaded the compiler, and the report can be sent."""
    module = sys.modules.get("service.compiler.children.incident")
    if module is None:
        return {}
    try:
        report: dict[str, Any] = module.report(role, error)
        return report if len(json.dumps(report)) <= _MOST_REPORT_BYTES else {**report, "operators": []}
    except Exception:  # the error itself is worth more than what is said about it
        traceback.print_exc()
        return {}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
