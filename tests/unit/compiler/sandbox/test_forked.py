"""Children that are forked from the calling process are sandboxed like children that are new processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.compiler.sandbox import check
from tests.support.sandbox import ALLOWED_PROC_FILES
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)
# Code of a process that forks children. It is a separate process, because pytest has several threads.
_PARENT = """
import json, os, sys
from pathlib import Path
from service.compiler.children.forked import keeping
from service.compiler.sandbox import Access, Limits, run_child
from service.core.errors import OctetError

role, handlers, scratch, request, lines = sys.argv[1:]
kept = os.memfd_create("kept", 0)
opened = open(handlers)
os.set_inheritable(opened.fileno(), True)
exec(lines)
try:
    said = run_child(
        role, json.loads(request), access=Access((Path(handlers),), (Path(scratch),)), handlers=Path(handlers),
        limits=Limits(wall_s=60, cpu_s=30, memory_bytes=1 << 30, file_bytes=1 << 26), fork=keeping(kept),
    )
except OctetError as error:
    said = error.to_json()
except RuntimeError as error:
    said = {"error": str(error)}
print(json.dumps(said))
"""


def attempt(scratch: Path, role: str, request: object = None, lines: str = "") -> dict[str, Any]:
    from tests.support.sandbox import handlers

    arguments = [role, str(handlers(role)), str(scratch), json.dumps(request or {}), lines]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "AWS_SECRET_ACCESS_KEY": "secret"}
    process = subprocess.run(
        [sys.executable, "-c", _PARENT, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=WORK_TIMEOUT_S,
        check=True,
    )
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def test_it_has_the_environment_directory_and_group_of_a_child(scratch: Path) -> None:
    result = attempt(scratch, "echo")
    assert "AWS_SECRET_ACCESS_KEY" not in result["environment"]
    assert result["directory"] == result["environment"]["TMPDIR"] == str(scratch)
    assert (result["umask"], result["group"]) == (0o077, True)


def test_it_inherits_only_the_files_that_it_should(scratch: Path) -> None:
    listed = attempt(scratch, "descriptors")
    assert listed.pop("0") == "/dev/null"
    process_directory = f"/proc/{listed.pop('process')}"
    kinds = sorted(target.split(":")[0].split(" ")[0] for target in listed.values())
    assert sorted(set(kinds)) == sorted({"/memfd", "pipe", process_directory, *ALLOWED_PROC_FILES})
    assert kinds.count("/memfd") == 1


def test_its_crash_is_an_error_with_the_signal(scratch: Path) -> None:
    result = attempt(scratch, "die", {"how": "segfault"})
    assert result["code"] == "build_crashed"
    assert result["message"].startswith(f"the die process died of {signal.SIGSEGV.name}: ")


def test_a_process_with_other_threads_is_not_forked(scratch: Path) -> None:
    lines = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert "2 threads" in attempt(scratch, "echo", lines=lines)["error"]
