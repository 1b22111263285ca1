"""A build child that an upload has taken over. It builds normally, and then does the `mischief` in its request.

Pass this file as `handlers` to `run_child("build", …)`, like `escapes`.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.compiler.children.roles import build_role
from service.compiler.sandbox import Report


def build(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    result = build_role(request, report)
    mischief = request["mischief"]
    for name, source in mischief.get("replace", {}).items():
        shutil.copyfile(source, name)
    for path in mischief.get("write", []):
        report.log(f"{path}: {_attempt(Path(path))}")
    if mischief.get("exchange"):  # stores each program under the name of the next program
        symbols = sorted(result["kernels"])
        programs = [Path(f"{symbol}.json").read_text() for symbol in symbols]
        for symbol, program in zip(symbols, [*programs[1:], programs[0]], strict=True):
            Path(f"{symbol}.json").write_text(program)
    return {**result, **mischief.get("say", {})}


def _attempt(path: Path) -> str:
    try:
        path.write_bytes(b"x")
        os.listdir(path.parent)  # noqa: PTH208
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"
