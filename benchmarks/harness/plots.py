"""Draws plots in the environment `plot`, which has matplotlib."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.harness.home import CHECKOUT, default_home


def draw(module: str, output: Path, document: object) -> bool:
    """Runs a module that draws `document` into a file. Returns false, with a message, if the environment is missing or
    the module fails.
    """
    python = default_home().python("plot")
    if not python.exists():
        print("no environment to plot in; run: python -m benchmarks.setup_peers --making")
        return False
    command = [str(python), "-m", module, str(output)]
    return not subprocess.run(command, cwd=CHECKOUT, input=json.dumps(document), text=True, check=False).returncode
