"""The OpenVINO models in `tests/fixtures/openvino`, which `scripts/make_openvino_fixtures.py` writes, and edited copies
of them.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from service.compiler.importers.openvino.file.package import pack
from service.core.models.arrays import Array

FILE = Path(__file__).parent.parent / "fixtures" / "openvino" / "networks.zip"
with zipfile.ZipFile(FILE) as _archive:
    NAMES = sorted(name.removesuffix(".xml") for name in _archive.namelist() if name.endswith(".xml"))


def files_of(name: str) -> tuple[str, bytes]:
    """Returns the text of the graph, and the weights."""
    with zipfile.ZipFile(FILE) as archive:
        return archive.read(f"{name}.xml").decode(), archive.read(f"{name}.bin")


def packed(name: str, edit: Callable[[str], str] = lambda graph: graph) -> bytes:
    """Returns a fixture in the form in which it is uploaded. `edit` changes its graph first."""
    graph, weights = files_of(name)
    return pack(edit(graph).encode(), weights)


def answers_of(name: str) -> tuple[list[Array], list[list[Array]]]:
    """Returns the inputs, and OpenVINO's outputs for each of them."""
    with zipfile.ZipFile(FILE) as archive:
        saved = dict(np.load(io.BytesIO(archive.read(f"{name}.npz"))))
    count = sum(key.startswith("x") for key in saved)
    outputs = [[saved[key] for key in sorted(saved) if key.startswith(f"y{index}_")] for index in range(count)]
    return [saved[f"x{index}"] for index in range(count)], outputs
