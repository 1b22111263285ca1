"""Operands that an attribute places, in operator sets 1 to 6. ONNX Runtime has no kernels of these sets, so NumPy
computes the expected values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from tests.support.onnx_operator import Constant, Operand, model_of

RNG = np.random.default_rng(0)


def real(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def computed(op_type: str, operands: list[Operand], dtype: str, **attributes: Any) -> Array:
    data, sent = model_of(op_type, operands, [dtype], 6, attributes)
    return oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), sent)[0]


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -3])
def test_an_axis_places_the_second_operand(axis: int, is_constant: bool) -> None:
    x, y = real(3, 3, 3, 3), real(3, 3)
    behind = (1,) * (4 - axis % 4 - 2)
    second = Constant(y) if is_constant else y
    result = computed("Add", [x, second], "float32", broadcast=1, axis=axis)
    np.testing.assert_array_equal(result, x + y.reshape(3, 3, *behind))


def test_without_an_axis_the_last_axes_correspond() -> None:
    x, y = real(2, 3, 4), real(4)
    np.testing.assert_array_equal(computed("Mul", [x, y], "float32", broadcast=1), x * y)
    less = computed("Less", [x, real(2, 3, 4)], "bool")
    assert less.shape == x.shape


def test_slopes_belong_to_the_channels() -> None:
    x, slope = real(2, 3, 4, 5), real(3)
    result = computed("PRelu", [x, Constant(slope)], "float32")
    np.testing.assert_array_equal(result, np.where(x < 0, x * slope.reshape(3, 1, 1), x))
