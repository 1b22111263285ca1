"""RFFT2D, and the operators on its complex values, are LiteRT's within rounding."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import Unsupported
from tests.support import evidence, litert
from tests.support.conformance import assert_compiled_equals
from tests.support.tflite_builder import ModelBuilder

C, F = np.complex64, np.float32


def _model(shape: tuple[int, ...], lengths: tuple[int, int], reader: str, mover: str = "") -> bytes:
    """Returns the spectrum of images, moved by an operator, and read by another one."""
    builder = ModelBuilder()
    made = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    moved = {"RESHAPE": (int(np.prod(made)),), "EXPAND_DIMS": (1, *made), "SQUEEZE": made[1:]}.get(mover, made)
    x, spectrum, y = builder.tensor("x", shape, F), builder.tensor("spectrum", made, C), builder.tensor("y", moved, F)
    given = builder.constant("lengths", np.array(lengths, np.int32))
    builder.operator("RFFT2D", [x, given], [spectrum], schema.Rfft2dOptionsT())
    if mover:
        other = builder.tensor("moved", moved, C)
        inputs = {
            "RESHAPE": [builder.constant("shape", np.array(moved, np.int32))],
            "EXPAND_DIMS": [builder.constant("axis", np.array(0, np.int32))],
        }.get(mover, [])
        builder.operator(mover, [spectrum, *inputs], [other], schema.SqueezeOptionsT() if mover == "SQUEEZE" else None)
        spectrum = other
    builder.operator(reader, [spectrum], [y])
    return builder.build([x], [y])


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ((3, 1, 8), (1, 8)),
        ((2, 4, 8), (4, 8)),
        ((1, 256), (1, 256)),
        ((2, 3, 7), (4, 8)),
        ((2, 2), (2, 2)),
        ((5, 9), (4, 8)),
    ],
)
@pytest.mark.parametrize("reader", ["REAL", "IMAG", "COMPLEX_ABS", "CAST"])
def test_a_spectrum(shape: tuple[int, ...], lengths: tuple[int, int], reader: str) -> None:
    _assert_close(_model(shape, lengths, reader))


@pytest.mark.parametrize("mover", ["RESHAPE", "EXPAND_DIMS", "SQUEEZE"])
def test_complex_values_are_moved(mover: str) -> None:
    _assert_close(_model((1, 2, 4, 8), (4, 8), "IMAG", mover))


def _assert_close(data: bytes) -> None:
    loaded = litert.interpreter(data)
    inputs = litert.random_inputs(loaded, np.random.default_rng(1))
    imported = import_model(data)
    (ours,) = oracle.run(imported.module, get_mode(LITERT_REFERENCE), inputs)
    (theirs,) = litert.run(loaded, inputs)
    evidence.record(imported, LITERT_REFERENCE, [[ours]], [[theirs]])
    # LiteRT transforms in float64. Here, each value is the sum of at most 40 products of values up to 200.
    np.testing.assert_allclose(ours, theirs, 1e-5, 2e-4)


@pytest.mark.slow
def test_compiled_code_equals_the_oracle() -> None:
    data, mode = _model((2, 4, 64), (4, 64), "COMPLEX_ABS"), get_mode(LITERT_REFERENCE)
    module, rng = import_model(data).module, np.random.default_rng(1)
    inputs = [litert.random_inputs(litert.interpreter(data), rng) for _ in range(2)]
    assert_compiled_equals(module, LITERT_REFERENCE, inputs, [], [oracle.run(module, mode, each) for each in inputs])


def test_complex_outputs_are_refused() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8), F), builder.tensor("y", (1, 5), C)
    builder.operator("RFFT2D", [x, builder.constant("lengths", np.array([1, 8], np.int32))], [y])
    with pytest.raises(Unsupported, match="the output y has the type complex64"):
        import_model(builder.build([x], [y]))
