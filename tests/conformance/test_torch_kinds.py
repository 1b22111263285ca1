"""PyTorch's operators, one small model each, compared with PyTorch's own results (`scripts/torch_kinds.py`)."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.torch import import_torchscript
from service.compiler.importers.torch.exported import import_exported
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import FBGEMM, PT2E
from service.core.models.arrays import Array
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.torchscript import FOLDER

FILE = FOLDER / "kinds.zip"
with zipfile.ZipFile(FILE) as archive:
    SUFFIXES = dict(name.rsplit(".", 1) for name in archive.namelist() if not name.endswith(".npz"))
NAMES = sorted(SUFFIXES)
# PyTorch adds real values in its own order, and computes functions with its own polynomials.
TOLERANCE = 2e-6


def contents(name: str) -> tuple[bytes, list[Array], list[Array]]:
    """Returns a model, its inputs, and PyTorch's outputs."""
    with zipfile.ZipFile(FILE) as archive:
        arrays = np.load(io.BytesIO(archive.read(f"{name}.npz")))
        inputs = [arrays[each] for each in arrays.files if each.startswith("x")]
        outputs = [arrays[each] for each in arrays.files if each.startswith("y")]
        return archive.read(f"{name}.{SUFFIXES[name]}"), inputs, outputs


def check(name: str, actual: list[Array], expected: list[Array]) -> None:
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if name.endswith("_float"):
            np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
        else:
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_oracle_equals_torch(name: str) -> None:
    model, inputs, expected = contents(name)
    importer, mode = (import_exported, PT2E) if SUFFIXES[name] == "pt2" else (import_torchscript, FBGEMM)
    imported = importer(model)
    actual = oracle.run(imported.module, get_mode(mode), inputs)
    evidence.record(imported, mode, [actual], [expected])
    check(name, actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled_model_equals_torch(name: str, tmp_path: Path) -> None:
    model, inputs, expected = contents(name)
    path = tmp_path / f"model.{SUFFIXES[name]}"
    path.write_bytes(model)
    check(name, compiled(path, PT2E if path.suffix == ".pt2" else FBGEMM, tmp_path).run(inputs), expected)
