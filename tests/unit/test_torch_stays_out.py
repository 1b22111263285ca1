"""Checks that only the child that runs PyTorch models imports PyTorch, although `tvm_ffi` imports it if it can."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.compiler.sandbox import Access, Limits, run_child
from service.compiler.sandbox.zygotes import READY
from tests.support.waiting import WORK_TIMEOUT_S

_LIMITS = Limits(wall_s=WORK_TIMEOUT_S, cpu_s=60, memory_bytes=8 << 30, file_bytes=1 << 20)
_ROLES = """
def {role}(request, report):
    try:
        import torch
    except ImportError:
        return {{"imported": False}}
    return {{"imported": True}}
"""


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """Returns a folder for PYTHONPATH with a package `torch`, which creates a file when it is imported."""
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("open(__file__ + '.imported', 'w').close()\n__version__ = '2.13.0'\n")
    return package.parent


def was_imported(torch: Path) -> bool:
    return (torch / "torch" / "__init__.py.imported").exists()


def environment(torch: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(torch)}


def test_tvm_ffi_by_itself_imports_it(torch: Path) -> None:
    """If this fails, `tvm_ffi` no longer imports PyTorch, and the other tests are not needed any more."""
    subprocess.run([sys.executable, "-c", "import tvm_ffi"], env=environment(torch), check=False)
    assert was_imported(torch)


def test_a_command_does_not_import_it(torch: Path) -> None:
    program = "import service.cli, service.native, service.runtime"
    subprocess.run([sys.executable, "-c", program], env=environment(torch), check=True)
    assert not was_imported(torch)


def test_a_zygote_does_not_import_it(torch: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "service.compiler.children.zygote", str(theirs.fileno()), "tvm_ffi"]
    with theirs, subprocess.Popen(command, env=environment(torch), pass_fds=[theirs.fileno()]) as zygote:
        theirs.close()
        assert ours.recv(len(READY)) == READY
        ours.close()
        assert zygote.wait(WORK_TIMEOUT_S) == 0
    assert not was_imported(torch)


@pytest.mark.parametrize(("role", "imports"), [("verify", False), ("reference", True)])
def test_only_the_child_that_runs_pytorch_imports_it(role: str, imports: bool, torch: Path, tmp_path: Path) -> None:
    roles = tmp_path / "roles.py"
    roles.write_text(_ROLES.format(role=role))
    access = Access(readable=(torch, roles), writable=(torch / "torch",))
    answer = run_child(role, {}, access=access, limits=_LIMITS, handlers=roles, env={"PYTHONPATH": str(torch)})
    assert answer["imported"] is imports
    assert was_imported(torch) is imports
