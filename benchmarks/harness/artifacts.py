"""Compiles models with `octet compile`, and keeps the artifacts in a cache.

An artifact is compiled again if the model or the compiler's sources have changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.frameworks import dimensions
from benchmarks.harness.home import CHECKOUT, Home

_PARTS_OF_THE_COMPILER = ("service/compiler", "service/core", "service/runtime")
_NAME_LENGTH = 16


class NotCompiled(RuntimeError):
    """`octet compile` failed."""


def compile_model(model: Path, output: Path, *options: str) -> str:
    """Runs `octet compile`. Returns the artifact's digest. Raises NotCompiled."""
    command = [sys.executable, "-m", "service.cli", "compile", str(model.absolute()), "--output"]
    command += [str(output.absolute()), "--json", *options]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotCompiled(reason(done.stdout, done.stderr))
    return str(json.loads(done.stdout)["artifact"])


def artifact(home: Home, model: Path, numerics: str, open_shape: Sequence[int] = ()) -> Path:
    """Returns the folder with `model` compiled for this machine. Raises NotCompiled.

    Args:
        open_shape: shape of the input, if the file leaves it open.
    """
    stem = ".".join([model.stem, numerics, *([f"batch{open_shape[0]}"] if open_shape else [])])
    folder = home.artifacts / f"{stem}.{_key(model)}"
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"unfinished.{folder.name}")
    shape = ["--input-shape", dimensions(open_shape)] if open_shape else []
    compile_model(model, unfinished, "--target", "host", "--numerics", numerics, *shape)
    for stale in folder.parent.glob(f"{stem}.{'[0-9a-f]' * _NAME_LENGTH}"):
        shutil.rmtree(stale)
    unfinished.replace(folder)
    return folder


def reason(stdout: str, stderr: str) -> str:
    """Returns the reason of a failure, as `octet --json` reports it, or else the last line that it printed."""
    try:
        error = json.loads(stdout)["error"]
    except (ValueError, KeyError, TypeError):
        return (stderr.strip().splitlines() or ["octet compile failed without a message"])[-1]
    return f"{error['code']}: {error['message']}"


def _key(model: Path) -> str:
    """Returns a key that changes with the model and the compiler's sources, so that no stale artifact is timed."""
    digest = hashlib.sha256(model.read_bytes())
    for part in _PARTS_OF_THE_COMPILER:
        for source in sorted((CHECKOUT / part).rglob("*.py")):
            digest.update(str(source.relative_to(CHECKOUT)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:_NAME_LENGTH]
