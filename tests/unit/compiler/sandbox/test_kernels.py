"""The sandbox on Linux kernels without some of its features, and with other users."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import service
from service.compiler.sandbox import scratch_directory
from service.compiler.sandbox.kernel import architecture
from tests.support.kernel_headers import syscall_numbers
from tests.support.sandbox import handlers

_UNDER = """
    import ctypes, json, os, struct, sys
    from pathlib import Path
    from service.compiler.sandbox import Access, Limits, bpf, check, run_child
    from service.compiler.sandbox.kernel import prctl
    from service.core.errors import OctetError

    order = json.loads(sys.argv[1])
    if order["hidden"]:
        # a filter as a container runtime's: the call is there but answers ENOSYS
        program = bpf.load(bpf.SYSCALL)
        for number in order["hidden"]:
            program += bpf.when_equal(number, bpf.give(bpf.RET_ERRNO | 38))
        program += bpf.give(bpf.RET_ALLOW)
        packed = b"".join(instruction.pack() for instruction in program)
        instructions = ctypes.create_string_buffer(packed, len(packed))
        fprog = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(instructions)), 16)
        prctl(38, 1)
        prctl(22, 2, ctypes.addressof(fprog))  # PR_SET_SECCOMP: installs it though seccomp(2) is to be hidden
    answers = {"check": [(finding.name, finding.available, bool(finding.lost)) for finding in check()]}
    scratch = Path(order["scratch"])
    for role, request in order["roles"].items():
        handlers = Path(order["handlers"][role])
        try:
            answers[role] = run_child(
                role, request, access=Access((handlers,), (scratch,)), limits=Limits(30, 30, 1 << 29, 1 << 26),
                handlers=handlers, allow_unsandboxed=order["allow"], env=order["env"],
            )
        except OctetError as error:
            answers[role] = error.to_json()
    print(json.dumps(answers))
"""


def _elsewhere(
    scratch: Path,
    roles: Mapping[str, Mapping[str, Any]],
    *,
    hidden: tuple[str, ...] = (),
    allow: bool = False,
    python: str = sys.executable,
    user: int | None = None,
    copies: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Runs `roles` from a separate process, which hides system calls or has another user.

    Args:
        scratch: the scratch folder of the children.
        roles: role -> request.
        hidden: system calls that appear to be unimplemented.
        allow: continue even if the sandbox is incomplete.
        python: the interpreter.
        user: the user and group of the process.
        copies: a folder for copies of the roles' files, in case `user` cannot read the originals.
        env: environment variables of the process and its children.
    """
    table = syscall_numbers(architecture())
    order = {
        "hidden": [table[name] for name in hidden],
        "scratch": str(scratch),
        "handlers": {role: str((copies or handlers(role).parent) / handlers(role).name) for role in roles},
        "roles": roles,
        "allow": allow,
        "env": env or {},
    }
    done = subprocess.run(
        [python, "-B", "-c", textwrap.dedent(_UNDER), json.dumps(order)],
        capture_output=True,
        text=True,
        check=False,
        cwd=scratch,
        env={**os.environ, **(env or {})},
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize(
    ("hidden", "missing", "lost"),
    [
        ("landlock_create_ruleset", "landlock", "read and write every file"),
        ("seccomp", "seccomp", "open sockets, start programs"),
    ],
)
def test_on_an_incomplete_kernel_nothing_is_built(scratch: Path, hidden: str, missing: str, lost: str) -> None:
    answers = _elsewhere(scratch, {"echo": {}}, hidden=(hidden,))
    assert [missing, False, True] in answers["check"]
    assert answers["echo"]["code"] == "sandbox_unavailable"
    assert f"no {missing}" in answers["echo"]["message"]
    assert lost in answers["echo"]["message"]
    assert "OCTET_ALLOW_UNSANDBOXED" in answers["echo"]["hint"]


def test_without_landlock_the_filter_still_works(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    answers = _elsewhere(
        scratch,
        {"start_programs": {}, "harm_processes": {}, "read_files": {"secret": str(tmp_path / "secret")}},
        hidden=("landlock_create_ruleset",),
        allow=True,
    )
    assert set(answers["start_programs"].values()) == {"EPERM"}
    assert set(answers["harm_processes"].values()) == {"EPERM"}
    assert answers["read_files"]["open"] == "done"  # as `lost` announces


def test_without_seccomp_landlock_still_works(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    answers = _elsewhere(
        scratch,
        {"read_files": {"secret": str(tmp_path / "secret")}, "raise_limits": {}},
        hidden=("seccomp",),
        allow=True,
    )
    assert answers["read_files"]["open"] == "EACCES"
    assert set(answers["raise_limits"].values()) == {"EPERM"}


NOBODY = 65534


def _python_for(user: int) -> str | None:
    """Returns an interpreter that `user` may run. The current one may be in a home directory."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            subprocess.run(
                [python, "-c", "import sys; assert sys.version_info >= (3, 11)"],
                user=user, group=user, extra_groups=[], cwd="/", check=True, capture_output=True,
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_the_sandbox_works_for_the_user_nobody() -> None:
    python = _python_for(NOBODY)
    if python is None:
        pytest.skip("no interpreter that nobody may run")
    with scratch_directory(Path(tempfile.gettempdir())) as scratch:
        secret, work = scratch / "secret", scratch / "work"
        secret.write_text("x")
        work.mkdir()
        copies = [Path(shutil.copy(handlers(role), scratch)) for role in ("echo", "die")]
        for path in (scratch, secret, work, *copies):
            os.chown(path, NOBODY, NOBODY)
        answers = _elsewhere(
            work,
            {
                "read_files": {"secret": str(secret)},
                "open_sockets": {"port": 9},
                "start_programs": {},
                "harm_processes": {},
                "raise_limits": {},
                "use_threads": {"threads": 8},
                "use_memory": {},
                "die": {"how": "segfault"},
            },
            python=python,
            user=NOBODY,
            copies=scratch,
            env={"PYTHONPATH": str(Path(service.__path__[0]).parent)},
        )
    assert answers["read_files"]["open"] == "EACCES"
    for role in ("open_sockets", "start_programs", "harm_processes", "raise_limits"):
        assert set(answers[role].values()) == {"EPERM"}, role
    assert answers["use_threads"] == {"sum": 28}
    assert answers["use_memory"]["code"] == "out_of_memory"
    assert answers["die"]["code"] == "build_crashed"
