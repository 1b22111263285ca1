"""The entry point of sandboxed children: `python -m service.compiler.children.child ROLE DESCRIPTOR PARENT_DEATH`.

`sandbox.run_child` starts a child, or a zygote forks it. The child reads its orders from stdin, and reports through the
pipe DESCRIPTOR. First, it gives up access to all files except those in its orders. Then it imports the modules of the
role, which are trusted (a forked child has imported them already). Then it gives up all system calls that it does not
need. Only then does it handle the request, which may contain an upload.
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
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from service.compiler.children.handler import Handler
from service.compiler.locating import described
from service.compiler.sandbox import lockdown, parent_death
from service.compiler.sandbox.policy import Access, Limits
from service.compiler.sandbox.report import EXECUTE, Report
from service.compiler.sandbox.termination import is_out_of_memory, out_of_memory
from service.compiler.sandbox.watch import BUG, too_much_written
from service.compiler.sandbox.zygotes import FORKED, ChildDescriptors
from service.core.builds import dialects
from service.core.errors import BuildFailed, InternalError, OctetError
from service.core.system.imports import block_torch

_MOST_REPORT_BYTES = 64 << 10

# role -> "package.module:function"
ROLES: Mapping[str, str] = {
    "import": "service.compiler.children.roles:import_role",
    "inspect": "service.compiler.children.roles:inspect_role",
    "passes": "service.compiler.children.roles:passes_role",
    "build": "service.compiler.children.roles:build_role",
    "kernel": "service.compiler.children.roles:kernel_role",
    "oracle": "service.compiler.children.roles:oracle_role",
    "padding": "service.compiler.children.roles:padding_role",
    "folder": "service.compiler.children.folder_roles:folder_role",
    "dialects": "service.compiler.children.dialect_roles:dialects_role",
    "reference": "service.compiler.children.checking_roles:reference_role",
    "time": "service.compiler.children.checking_roles:time_role",
    "profile": "service.compiler.children.checking_roles:profile_role",
    "race": "service.compiler.children.checking_roles:race_role",
    "verify": "service.compiler.children.checking_roles:verify_role",
    "run": "service.compiler.children.running_roles:run_role",
    "bench": "service.compiler.children.running_roles:bench_role",
    "explain": "service.compiler.children.running_roles:explain_role",
    "count": "service.compiler.children.running_roles:count_role",
    "channels": "service.compiler.children.observing_roles:channels_role",
    "extremes": "service.compiler.children.observing_roles:extremes_role",
    "histograms": "service.compiler.children.observing_roles:histograms_role",
    "compare": "service.compiler.children.observing_roles:compare_role",
    "moments": "service.compiler.children.observing_roles:moments_role",
    "pair": "service.compiler.children.observing_roles:pair_role",
    "switched": "service.compiler.children.observing_roles:switched_role",
    "quantize": "service.quantize.child:quantize_role",
    "evaluate": "service.evaluate.child:artifact_role",
    "evaluate_reference": "service.evaluate.child:reference_role",
    "evaluate_elsewhere": "service.evaluate.answering:elsewhere_role",
    "write_inputs": "service.evaluate.child:write_role",
    "draw_inputs": "service.evaluate.child:draw_role",
}
# The roles that may run PyTorch as a reference runtime.
_TORCH_ROLES = ("reference", "evaluate_reference")
_COMPILING = frozenset({*FORKED, "dialects", "padding", "quantize"})  # the roles that need the dialects


def load(role: str) -> None:
    """Imports the modules of `role` before a process is forked for it. Modules of other roles are imported in the
    child.
    """
    if role in ROLES:
        importlib.import_module(ROLES[role].split(":")[0])


def become(
    role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str], keep: Collection[int] = ()
) -> None:
    """Sets up a forked process as `subprocess` would between fork and exec, and calls `main`.

    Args:
        keep: the numbers of the descriptors that stay open, in addition to `ends`.
    """
    os.chdir(directory)
    for source, position in ((ends.stdin, 0), (ends.log, 1), (ends.log, 2)):
        os.dup2(source, position)
    _close_all_but({0, 1, 2, ends.messages, ends.parent_death, *keep})
    # The parent's file objects may refer to descriptors that are closed here, and their buffers may contain data that
    # was not written yet.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, 1, closefd=False) for number, mode in enumerate("rww"))
    os.environ.update(env)
    tempfile.tempdir = None  # the directory is determined again from the new environment when it is next used
    main(role, ends.messages, ends.parent_death)


def _close_all_but(kept: Iterable[int]) -> None:
    first = 0
    for descriptor in sorted(kept):
        if first < descriptor:  # given an empty range, closerange would close all higher descriptors
            os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def main(role: str, descriptor: int, parent_death_end: int) -> None:
    """Reads the orders from stdin, carries them out and exits. Never returns.

    Args:
        role: one of `ROLES`, or `EXECUTE`.
        descriptor: the pipe for reports.
        parent_death_end: see `parent_death.die_with`.
    """
    faulthandler.enable()  # after a native crash, the Python stack is written to the log
    os.set_inheritable(descriptor, False)
    report = Report(descriptor)
    orders = json.load(sys.stdin.buffer)
    parent_death.die_with(orders["parent"], parent_death_end)
    parent_death.die_after(orders["alone_s"])
    _close_stdin()
    limits = Limits(**orders["limits"])
    try:
        if role in _COMPILING and dialects.environment():
            _load_dialects()
        if not orders["unsandboxed"]:
            access = Access.from_json(orders["access"])
            lockdown.close_files(access, limits, allow_unsandboxed=orders["allow_unsandboxed"])
        if role == EXECUTE:
            _execute(orders, limits, report)
        if role not in _TORCH_ROLES:
            block_torch()
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
    # sys.exit would run exit handlers of libraries, which could crash. The parent removes the scratch directory.
    os._exit(0)


def _handler(role: str, handlers: str | None) -> Handler:
    handler: Handler
    if handlers is not None:
        handler = runpy.run_path(handlers)[role]
    else:
        module, name = ROLES[role].split(":")
        handler = getattr(importlib.import_module(module), name)
    return handler


def _load_dialects() -> None:
    """Runs the configured dialects before this process gives up access to their files. They are trusted like Octet's
    own code. A forked child has inherited them from the zygote.
    """
    from service.compiler.dialects import loading

    loading.load_configured()


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
    """Returns the error that is sent to the parent. The traceback is in the log."""
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
            f"{who} is not allowed to read {error.filename}",
            hint="it gives up root's access to the files of other users: run Octet as the owner of the file, or make "
            "the file readable for other users",
        )
    return InternalError(described(error), hint=BUG, report=_incident(role, error))


def _incident(role: str, error: BaseException) -> dict[str, Any]:
    """Returns the report of `compiler.children.incident`, or {} if this process has not loaded the compiler."""
    module = sys.modules.get("service.compiler.children.incident")
    if module is None:
        return {}
    try:
        report: dict[str, Any] = module.report(role, error)
        return report if len(json.dumps(report)) <= _MOST_REPORT_BYTES else {**report, "operators": []}
    except Exception:  # a failure to write the report must not hide the error itself
        traceback.print_exc()
        return {}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
