"""Commands that run an artifact. Its code can do nothing but compute, unless an option turns the sandbox off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cache import OciLayout
from service.cache.export import export
from service.compiler.build.artifact_archive import received
from service.compiler.build.pipeline import CompileRequest
from service.compiler.build.received import publish_received
from service.compiler.sandbox import check
from service.core.artifacts.artifact import TRAVELING
from service.core.digest import digest_of_file
from service.core.errors import VerificationFailed
from service.core.settings import Settings
from tests.support.compiled import Unreported
from tests.support.hostile import ATTEMPTS, Trap, trap
from tests.support.small_artifact import tensor
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)
COMMANDS = {
    "run": ("run", "FOLDER", "INPUT", "--raw"),
    "verify": ("verify", "FOLDER"),
    "bench": ("bench", "FOLDER", "--threads", "1", "--seconds", "0"),
    "explain": ("explain", "FOLDER", "--seconds", "0"),
}

# All commands start their child in the same way, so most tests run only one of them in `make test`.
ONE = [pytest.param(command, marks=[pytest.mark.slow] * (command != "run")) for command in COMMANDS]


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Trap]:
    with trap(tmp_path) as made:
        yield made


@pytest.mark.parametrize("command", COMMANDS)
def test_the_code_of_an_artifact_reaches_nothing(hostile: Trap, command: str) -> None:
    octet(hostile, command, status=1 if command == "verify" else 0)
    assert hostile.reached() == set()


@pytest.mark.parametrize("command", ONE)
def test_with_the_option_it_reaches_what_its_user_may(hostile: Trap, command: str) -> None:
    octet(hostile, command, "--unsandboxed", status=1 if command == "verify" else 0)
    assert hostile.reached() == {*hostile.traces, "remove a file", "connect"}


def test_each_attempt_is_denied(hostile: Trap) -> None:
    answered = dict(zip(ATTEMPTS, answers(hostile), strict=False))
    assert {name: value for name, value in answered.items() if value >= 0} == {}


def test_with_the_option_each_attempt_succeeds(hostile: Trap) -> None:
    answered = dict(zip(ATTEMPTS, answers(hostile, "--unsandboxed"), strict=False))
    assert {name: value for name, value in answered.items() if value < 0} == {}


def test_a_pushed_artifact_reaches_nothing_during_its_verification(hostile: Trap, tmp_path: Path) -> None:
    archive, scratch = tmp_path / "archive.tar", tmp_path / "work"
    archive.write_bytes(b"".join(export(OciLayout.open(hostile.folder), hostile.digest, TRAVELING).chunks()))
    scratch.mkdir()
    found = received(archive)
    request = CompileRequest(archive, digest_of_file(archive), found.target, found.numerics, found.options)
    with pytest.raises(VerificationFailed):
        publish_received(request, OciLayout(tmp_path / "store"), scratch, Unreported(), Settings(data_dir=tmp_path))
    assert hostile.reached() == set()


@pytest.mark.parametrize("command", ONE)
@pytest.mark.parametrize("arguments", [(), ("--unsandboxed",)])
def test_a_crash_is_an_error_with_its_signal(tmp_path: Path, command: str, arguments: tuple[str, ...]) -> None:
    with trap(tmp_path, crash="*(volatile int*)0 = 0;") as crashing:
        error = json.loads(octet(crashing, command, *arguments, "--json", status=1).stdout)["error"]
    assert error["code"] == "build_crashed"
    assert error["message"].startswith(f"the {command} process died of {signal.SIGSEGV.name}")
    assert "Traceback" not in error["message"]


@pytest.mark.parametrize("command", ONE)
def test_on_a_kernel_without_the_sandbox_nothing_is_run(hostile: Trap, command: str) -> None:
    process = octet(hostile, command, "--json", status=1, without_landlock=True)
    error = json.loads(process.stdout)["error"]
    assert error["code"] == "sandbox_unavailable"
    assert "--unsandboxed" in error["hint"]
    assert hostile.reached() == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_is_informed_that_access_to_other_users_files_is_dropped(hostile: Trap) -> None:
    hostile.folder.chmod(0o700)
    os.chown(hostile.folder, 65534, 65534)
    error = json.loads(octet(hostile, "run", "--json", status=1).stdout)["error"]
    assert error["message"].startswith(f"the run process is not allowed to read {hostile.folder}")
    assert "as the owner of the file" in error["hint"]


def answers(hostile: Trap, *arguments: str) -> list[int]:
    """Returns the result of each attempt, as the kernel reported it."""
    document = json.loads(octet(hostile, "run", *arguments, "--json").stdout)
    values: list[int] = document["outputs"][0]["data"]
    return values


# Runs Octet as in a container whose system call filter makes landlock_create_ruleset return ENOSYS.
_WITHOUT_LANDLOCK = """
import errno, sys
from service.compiler.sandbox import landlock
landlock.abi = lambda: 0
from service.cli.command_line import main
sys.argv[0] = "octet"
main()
"""


def octet(hostile: Trap, command: str, *options: str, status: int = 0, without_landlock: bool = False) -> Any:
    given = hostile.folder.with_name("input.npy")
    np.save(given, tensor(1))
    words = {"FOLDER": str(hostile.folder), "INPUT": str(given)}
    program = ["-c", _WITHOUT_LANDLOCK] if without_landlock else ["-m", "service.cli"]
    arguments = [words.get(word, word) for word in COMMANDS[command]]
    process = subprocess.run(
        [sys.executable, *program, *arguments, *options], capture_output=True, text=True, timeout=WORK_TIMEOUT_S
    )
    assert process.returncode == status, (process.stdout, process.stderr)
    return process
