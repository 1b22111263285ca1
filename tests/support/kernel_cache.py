"""Compiled kernels that all servers and builds of a test run share, so that each kernel is compiled once.

A kernel's key is a digest of everything that determines its bytes. The folder is new in every test run, so a change of
the code that compiles kernels always takes effect.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from service.core.settings import Settings

_VARIABLE = "OCTET_TEST_KERNELS"  # processes of pytest-xdist inherit it from the process that starts them


def start() -> bool:
    """Creates the folder of this test run. Returns false if a process that started this one has done so."""
    if _VARIABLE in os.environ:
        return False
    os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="octet-test-kernels-")
    return True


def end() -> None:
    """Deletes the folder."""
    shutil.rmtree(os.environ.pop(_VARIABLE), ignore_errors=True)


def share_kernels(data_dir: Path) -> None:
    """Makes a deployment with this data directory use the shared kernels, unless it has compiled some of its own."""
    link = Settings(data_dir=data_dir).objects_dir
    data_dir.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(os.environ[_VARIABLE])
