"""Runs the `octet` command as if some packages were not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.build_caches import share_results
from tests.support.waiting import WORK_TIMEOUT_S

_ROOT = Path(__file__).parents[2]


def octet_without(packages: tuple[str, ...], folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `octet` with every package of this environment except `packages`.

    Args:
        packages: the names of folders in site-packages. The names of their metadata folders begin in the same way.
        folder: an empty folder. It gets links to all other packages, and the data of the command.
    """
    links = folder / "site-packages"
    links.mkdir()
    share_results(folder / "data")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(packages) and path.suffix != ".pth":
            (links / path.name).symlink_to(path)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "OCTET_DATA_DIR": str(folder / "data"),
        "PYTHONPATH": os.pathsep.join([str(links), str(_ROOT)]),
    }
    # With -S, Python does not search the environment's real site-packages.
    command = [sys.executable, "-S", "-m", "service.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, env=environment, check=False)
