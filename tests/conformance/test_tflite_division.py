"""DIV of quantized values, compared with LiteRT for all pairs of stored values, except those that LiteRT refuses."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, MODES_OF
from service.core.models.arrays import Array
from tests.support.conformance import assert_equals_litert
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_arithmetic import quant
from tests.support.tflite_builder import Quant
from tests.support.tflite_operator import End, operator_model

EVERY = np.arange(256, dtype=np.uint8)


def division(x: Quant, y: Quant, z: Quant, divisors: int, *, activation: int = 0, dtype: type = np.uint8) -> bytes:
    options = schema.DivOptionsT(fusedActivationFunction=activation)
    ends = [End((256, 1), dtype, x), End((1, divisors), dtype, y)]
    return operator_model("DIV", ends, [End((256, divisors), dtype, z)], options, version=2)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("mode", MODES_OF["tflite"])
def test_every_quotient_equals_litert(mode: str, dtype: type) -> None:
    """In some cases, small quotients are shifted by more than 31 bits. The shift count wraps around."""
    rng, low = np.random.default_rng(0), np.iinfo(dtype).min
    every: Array = np.arange(low, low + 256).astype(dtype)
    for case in range(12):
        x, y, z = (quant(rng, dtype) for _ in range(3))
        divisors = np.delete(every, int(y.zero_point_array[0]) - low)
        activation = (0, 1, 3)[case % 3] if z.zero_point_array[0] - low < 200 else 0
        data = division(x, y, z, len(divisors), activation=activation, dtype=dtype)
        assert_equals_litert(data, mode, [[every[:, None], divisors[None]]])


def test_what_is_divided_by_zero_saturates() -> None:
    data = division(Quant(0.1, 100), Quant(0.1, 7), Quant(0.1, 50), 1)
    (made,) = oracle.run(
        import_model(data).module, get_mode(LITERT_REFERENCE), [EVERY[:, None], np.array([[7]], np.uint8)]
    )
    assert made[[99, 100, 101], 0].tolist() == [0, 50, 255]


def test_compiled_quotients_equal_the_oracle() -> None:
    module, mode = import_model(division(Quant(0.1, 100), Quant(0.01, 7), Quant(0.2, 50), 256)).module, "xnnpack"
    inputs = [EVERY[:, None].copy(), EVERY[None].copy()]
    (made,) = compile_and_run_all(canonicalize(module, get_mode(mode)), inputs)
    np.testing.assert_array_equal(made, oracle.run(module, get_mode(mode), inputs)[0])
