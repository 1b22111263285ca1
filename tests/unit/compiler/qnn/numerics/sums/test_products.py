"""Sums of products of integers, by code without kernels, equal the oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import IllTyped
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from tests.support.qnn_models import i8, module_of
from tests.support.selected import RUNNING, run_selected

LHS, RHS = i8(0.5, 3), i8(0.25, -7)


@pytest.mark.parametrize("length", [1, 7, 20])
def test_a_product_with_a_length_adds_only_the_first_products(length: int, tmp_path: Path) -> None:
    """The kernels decline sums that are not scaled."""
    module = module_of(
        [((3, 5, 20), "int8"), ((20, 9), "int8"), ((1,), "int32")],
        lambda emit, inputs: emit(ops.matmul(inputs[0], inputs[1], LHS, RHS, length=inputs[2])),
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((3, 5, 20), (20, 9)))
    inputs: list[Array] = [a, b, np.array([length], np.int32)]
    expected = (a[..., :length].astype(np.int64) - 3) @ (b[:length].astype(np.int64) + 7)
    np.testing.assert_array_equal(oracle.run(module, get_mode(ONNXRUNTIME), inputs)[0], expected)
    selection, (actual,) = run_selected(module, RUNNING[0], ONNXRUNTIME, inputs, tmp_path)
    np.testing.assert_array_equal(actual, expected)
    assert selection.layers == []


def test_a_length_is_one_number() -> None:
    a, b, lengths = (
        relax.const(np.ones(shape, dtype)) for shape, dtype in (((2, 3), "int8"), ((3, 4), "int8"), (2, "int32"))
    )
    with pytest.raises(IllTyped, match="the length must be one int32"):
        module_of([], lambda emit, _: emit(ops.matmul(a, b, LHS, RHS, length=lengths)))
