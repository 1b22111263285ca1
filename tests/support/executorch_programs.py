"""The ExecuTorch programs in `tests/fixtures/executorch`, which `scripts/make_executorch_fixtures.py` writes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from service.core.models.arrays import Array

_FILE = Path(__file__).parent.parent / "fixtures" / "executorch" / "programs.zip"
with zipfile.ZipFile(_FILE) as _archive:
    NAMES = sorted(name.removesuffix(".pte") for name in _archive.namelist() if name.endswith(".pte"))


def program(name: str) -> bytes:
    with zipfile.ZipFile(_FILE) as archive:
        return archive.read(f"{name}.pte")


def answers_of(name: str) -> tuple[list[list[Array]], list[list[Array]]]:
    """Returns samples of inputs, and ExecuTorch's outputs for each of them."""
    with zipfile.ZipFile(_FILE) as archive:
        saved = dict(np.load(io.BytesIO(archive.read(f"{name}.npz"))))
    count = sum(key.startswith("x") and key.endswith("_00") for key in saved)

    def values(kind: str, index: int) -> list[Array]:
        return [saved[key] for key in sorted(saved) if key.startswith(f"{kind}{index}_")]

    return [values("x", index) for index in range(count)], [values("y", index) for index in range(count)]
