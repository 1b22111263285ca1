"""The comparison that conformance tests of the importer make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import LITERT_REFERENCE
from tests.support import evidence, litert
from tests.support.litert import Array


def assert_oracle_equals_litert(data: bytes, samples: int, numerics: str = LITERT_REFERENCE) -> None:
    """`assert_equals_litert` on random inputs."""
    rng = np.random.default_rng(0)
    loaded = litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    assert_equals_litert(data, numerics, [litert.random_inputs(loaded, rng) for _ in range(samples)])


def assert_equals_litert(data: bytes, numerics: str, inputs: Sequence[Sequence[Array]]) -> None:
    """Imports a TFLite file, runs the module by the oracle (NumPy) and the file by the kernels of LiteRT that
    `numerics` names. Nothing of the compiler but the importer takes part. Of a model that keeps state, `inputs` are the
    calls of one sequence."""
    imported = import_model(data)
    loaded = litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    expected = [litert.run(loaded, sample) for sample in inputs]
    states = [state.first() for state in imported.signature.states]
    actual = oracle.run_sequence(imported.module, get_mode(numerics), inputs, states)
    evidence.compare(imported, numerics, actual, expected)
