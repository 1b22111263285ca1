"""Compares imported TFLite models with LiteRT, for conformance tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.models.arrays import Array
from service.core.target import detect_host
from tests.support import evidence, litert
from tests.support.qnn_models import COMPILES_ALL
from tests.support.selected import build_selected

import tvm  # isort: skip

# `make test` compiles the first model of every sixth test, `make test-all` every model.
_ONE_IN = 6
_compiled_tests: set[str] = set()


def assert_oracle_equals_litert(data: bytes, samples: int, numerics: str = LITERT_REFERENCE) -> None:
    """Calls `assert_equals_litert` with random inputs."""
    rng = np.random.default_rng(0)
    loaded = litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    assert_equals_litert(data, numerics, [litert.random_inputs(loaded, rng) for _ in range(samples)])


def assert_equals_litert(data: bytes, numerics: str, inputs: Sequence[Sequence[Array]]) -> None:
    """Imports a TFLite file, and compares the results of the oracle (NumPy) with those of LiteRT.

    `numerics` selects the kernels of LiteRT. The first model of each test is also compiled and compared with the
    oracle. If OCTET_TEST_COMPILE_ALL is set, every model is.

    Args:
        inputs: the samples. For a model with state, they are the calls of one sequence.
    """
    imported = import_model(data)
    loaded = litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    expected = [litert.run(loaded, sample) for sample in inputs]
    states = [state.first() for state in imported.signature.states]
    actual = oracle.run_sequence(imported.module, get_mode(numerics), inputs, states)
    evidence.compare(imported, numerics, actual, expected)
    if is_to_be_compiled():
        assert_compiled_equals(imported.module, numerics, inputs, states, actual)


def assert_compiled_equals(
    module: tvm.IRModule,
    numerics: str,
    inputs: Sequence[Sequence[Array]],
    states: Sequence[Array],
    expected: Sequence[Sequence[Array]],
) -> None:
    """Builds `module` for this machine as a build child does, and compares its outputs with `expected`.

    Args:
        states: the states before the first call. The calls form one sequence.
    """
    with tempfile.TemporaryDirectory() as scratch:
        _, run = build_selected(module, detect_host().target, numerics, [*inputs[0], *states], Path(scratch))
        for sample, wanted in zip(inputs, expected, strict=True):
            results = run([*sample, *states])
            outputs, states = results[: len(wanted)], results[len(wanted) :]
            for ours, theirs in zip(outputs, wanted, strict=True):
                # generated code stores float16 as uint16
                np.testing.assert_array_equal(ours.view(theirs.dtype), theirs)


def is_to_be_compiled() -> bool:
    """Returns true if the running test, one case of a parametrized test, is to compile its model.

    Which tests compile depends on their names alone, so it is the same in every run.
    """
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    is_chosen = crc32(test.encode()) % _ONE_IN == 0 and test not in _compiled_tests
    _compiled_tests.add(test)
    return is_chosen or COMPILES_ALL
