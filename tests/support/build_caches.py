"""Caches that all servers, commands and builds of a test run share: compiled kernels, and results of children.

A key contains a digest of everything that determines the entry, also of the compiler's own code. The folder is new in
every test run, so it has no entry of another version of the code. It is the default data directory of the run, so that
no test reads or changes the data directory of the user.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import certifi

from service.core.settings import Settings

_VARIABLE = "XDG_DATA_HOME"  # processes of pytest-xdist inherit it from the process that starts them
_PREFIX = "octet-test-data-"


def start() -> bool:
    """Creates the folder of this test run. Returns false if a process that started this one has done so."""
    if Path(os.environ.get(_VARIABLE, "")).name.startswith(_PREFIX):
        return False
    os.environ[_VARIABLE] = tempfile.mkdtemp(prefix=_PREFIX)
    return True


def end() -> None:
    """Deletes the folder."""
    shutil.rmtree(os.environ.pop(_VARIABLE), ignore_errors=True)


def one_authority() -> Path:
    """Returns the path of a file with the certificate of one authority, which replaces those of all authorities: each
    client of httpx would spend 20 ms of processor time on loading them, and tests connect to this machine only.
    """
    path = run_folder() / "authority.pem"
    if not path.exists():
        end_line = "-----END CERTIFICATE-----\n"
        path.write_text(Path(certifi.where()).read_text().partition(end_line)[0] + end_line)
    return path


def share_caches(data_dir: Path) -> None:
    """Makes a deployment with this data directory use the shared caches, unless it has caches of its own."""
    share_results(data_dir)
    _link(Settings(data_dir=data_dir).objects_dir, _shared().objects_dir)


def share_results(data_dir: Path) -> None:
    """Like `share_caches`, but the deployment compiles its kernels itself."""
    _link(Settings(data_dir=data_dir).results_dir, _shared().results_dir)


def run_folder() -> Path:
    """Returns the folder of this test run."""
    return Path(os.environ[_VARIABLE])


def _shared() -> Settings:
    return Settings(data_dir=run_folder() / "octet")


def _link(link: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(folder)
