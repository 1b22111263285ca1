"""The comparison that conformance tests of the importer make."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import LITERT_REFERENCE
from tests.support import litert


def assert_oracle_equals_litert(data: bytes, samples: int, numerics: str = LITERT_REFERENCE) -> None:
    """Imports a TFLite file, runs the module by the oracle (NumPy) and the file by the kernels of LiteRT that
    `numerics` names, on random inputs. Nothing of the compiler but the importer takes part."""
    imported = import_model(data)
    loaded = litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    rng = np.random.default_rng(0)
    for _ in range(samples):
        inputs = litert.random_inputs(loaded, rng)
        expected = litert.run(loaded, inputs)
        actual = oracle.run(imported.module, get_mode(numerics), inputs)
        assert [array.dtype for array in actual] == [array.dtype for array in expected]
        for ours, theirs in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
