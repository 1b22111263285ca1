"""Weights that torchao has quantized stay stored in their bits, and give PyTorch's results
(`scripts/torch_weights_only.py`).
"""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from service.compiler.importers.facts import facts_of
from service.compiler.importers.torch.exported import import_exported
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import PT2E
from service.core.models.arrays import Array
from tests.support import evidence
from tests.support.qnn_models import compile_and_run_all
from tests.support.torchscript import FOLDER

FILE = FOLDER / "weights_only.zip"
with zipfile.ZipFile(FILE) as _archive:
    NAMES = sorted(name.removesuffix(".pt2") for name in _archive.namelist() if name.endswith(".pt2"))
TOLERANCE = 2e-6  # sums of at most 32 products of about 1, added in another order


def contents(name: str) -> tuple[bytes, Array, Array]:
    """Returns a model, its input and PyTorch's output."""
    with zipfile.ZipFile(FILE) as archive:
        arrays = np.load(io.BytesIO(archive.read(f"{name}.npz")))
        return archive.read(f"{name}.pt2"), arrays["x0"], arrays["y0"]


@pytest.mark.parametrize("name", NAMES)
def test_the_results_are_those_of_pytorch(name: str) -> None:
    data, x, expected = contents(name)
    imported = import_exported(data)
    (actual,) = oracle.run(imported.module, get_mode(PT2E), [x])
    evidence.compare(imported, PT2E, [[actual]], [[expected]], TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_the_class_names_the_bits_of_the_weights(name: str) -> None:
    """A user is not advised to quantize the file again."""
    kind, bits = name.rsplit("_", 1)
    facts = facts_of(import_exported(contents(name)[0]))
    assert facts.computes == f"weights of {bits} bits, computes in float32"
    assert facts.notices == ()
    assert facts.weights is not None
    assert facts.weights.storage == (f"int{bits}",)
    assert (facts.weights.granularity == ("per-block",)) == (kind == "groups" or name in ("subclasses_4", "tokens_4"))


@pytest.mark.parametrize("name", ["groups_4", "subclasses_2", "tokens_4"])
def test_compiled_code_equals_the_oracle(name: str) -> None:
    data, x, _ = contents(name)
    module, mode = import_exported(data).module, get_mode(PT2E)
    np.testing.assert_array_equal(
        compile_and_run_all(canonicalize(module, mode), [x])[0], oracle.run(module, mode, [x])[0]
    )
