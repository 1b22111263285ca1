"""The importer against LiteRT: what it makes of a file computes what LiteRT's reference kernels compute.

The module is run by the oracle (NumPy), so that nothing of the compiler but the importer is under test.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import LITERT_REFERENCE
from tests.support import litert
from tests.support.tflite_catalog import MODELS


def agrees(data: bytes, samples: int) -> None:
    imported = import_model(data)
    loaded = litert.interpreter(data)
    rng = np.random.default_rng(0)
    for _ in range(samples):
        inputs = litert.random_inputs(loaded, rng)
        expected = litert.run(loaded, inputs)
        actual = oracle.run(imported.module, get_mode(LITERT_REFERENCE), inputs)
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_operator_equals_litert(name: str) -> None:
    agrees(MODELS[name](), samples=5)
