"""The MXNet models in `tests/fixtures/mxnet`, which `scripts/make_mxnet_fixtures.py` writes, and edited copies of
them.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from service.compiler.importers.mxnet.package import pack
from service.core.models.arrays import Array

FOLDER = Path(__file__).parent.parent / "fixtures" / "mxnet"
NAMES = sorted(path.name.removesuffix("-symbol.json") for path in FOLDER.glob("*-symbol.json"))

Document = dict[str, Any]


def symbol_of(name: str) -> Document:
    document: Document = json.loads((FOLDER / f"{name}-symbol.json").read_text())
    return document


def params_of(name: str) -> bytes:
    return (FOLDER / f"{name}-0000.params").read_bytes()


def packed(name: str, edit: Callable[[Document], None] = lambda document: None) -> bytes:
    """Returns a fixture in the form in which it is uploaded. `edit` changes its symbol first."""
    document = symbol_of(name)
    edit(document)
    return pack(json.dumps(document).encode(), params_of(name))


def node_of(document: Document, op: str) -> Document:
    """Returns the first node with the operator `op`."""
    node: Document = next(node for node in document["nodes"] if node["op"] == op)
    return node


def answers_of(name: str) -> tuple[Array, Array]:
    """Returns the inputs and MXNet's outputs, sample by sample."""
    saved = np.load(FOLDER / f"{name}.npz")
    return saved["inputs"], saved["outputs"]


# Networks of `scripts/make_mxnet_networks.py`, each with the layers that its name says.
NETWORKS_FILE = FOLDER / "networks.zip"
with zipfile.ZipFile(NETWORKS_FILE) as _archive:
    NETWORKS = sorted(name.removesuffix(".npz") for name in _archive.namelist() if name.endswith(".npz"))


def network_of(name: str) -> tuple[bytes, list[Array], list[list[Array]]]:
    """Returns a network in the form in which it is uploaded, the inputs, and MXNet's outputs for each of them."""
    with zipfile.ZipFile(NETWORKS_FILE) as archive:
        data = pack(archive.read(f"{name}-symbol.json"), archive.read(f"{name}-0000.params"))
        saved = np.load(io.BytesIO(archive.read(f"{name}.npz")))
    arrays = [saved["outputs"], *(saved[key] for key in saved if key.startswith("output_"))]
    return data, list(saved["inputs"]), [list(sample) for sample in zip(*arrays, strict=True)]
