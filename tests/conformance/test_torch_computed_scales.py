"""Exported programs that compute scales when they run, and recurrent layers, give PyTorch's results
(`scripts/torch_computed_scales.py`).
"""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from service.compiler.importers.torch.exported import import_exported
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import PT2E
from service.core.models.arrays import Array
from tests.support.qnn_models import compile_and_run_all
from tests.support.torchscript import FOLDER

FILE = FOLDER / "computed_scales.zip"
with zipfile.ZipFile(FILE) as _archive:
    NAMES = sorted(name.removesuffix(".pt2") for name in _archive.namelist() if name.endswith(".pt2"))
# Programs in which no sum of real values decides the result.
EQUAL = ("asymmetric_tokens", "dense_int8", "symmetric", "tensor", "tokens")
TOLERANCE = 2.0**-20  # a part of the largest magnitude: sums in another order, and functions by other polynomials


def contents(name: str) -> tuple[bytes, list[Array], list[list[Array]]]:
    """Returns a program, its inputs, and PyTorch's outputs for each of them."""
    with zipfile.ZipFile(FILE) as archive:
        saved = dict(np.load(io.BytesIO(archive.read(f"{name}.npz"))))
        inputs = [saved[key] for key in sorted(saved) if key.startswith("x")]
        outputs = [[saved[key] for key in sorted(saved) if key.startswith(f"y{at}_")] for at in range(len(inputs))]
        return archive.read(f"{name}.pt2"), inputs, outputs


@pytest.mark.parametrize("name", NAMES)
def test_the_results_are_those_of_pytorch(name: str) -> None:
    data, inputs, expected = contents(name)
    results = oracle.run_all(import_exported(data).module, get_mode(PT2E), [[each] for each in inputs])
    for ours, theirs in zip(results, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            limit = 0 if name in EQUAL else TOLERANCE * np.abs(other).max()
            np.testing.assert_allclose(one, other, rtol=0, atol=limit)


@pytest.mark.parametrize("name", ["dense_int8", "asymmetric_tokens"])
def test_compiled_code_equals_the_oracle(name: str) -> None:
    data, inputs, _ = contents(name)
    module, mode = import_exported(data).module, get_mode(PT2E)
    compiled = compile_and_run_all(canonicalize(module, mode), [inputs[0]])
    for one, other in zip(compiled, oracle.run(module, mode, [inputs[0]]), strict=True):
        np.testing.assert_array_equal(one, other)
