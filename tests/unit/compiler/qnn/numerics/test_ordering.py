"""Positions of the largest values, and running sums: generated code is compared with the oracle, and the oracle with
NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.graph import emit
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import IllTyped
from service.compiler.targets import OperandTypes
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.canonical import holds


def module_of(shape: tuple[int, ...], dtype: str, **options: int) -> tvm.IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
    make = ops.top_places if "count" in options else ops.running_sum
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, make(x, **options), "result"))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_positions_of_the_largest_are_in_order_and_the_first_of_equals(dtype: str) -> None:
    keys = np.random.default_rng(0).integers(-3, 3, (2, 3, 11)).astype(dtype)
    keys[0, 0, 4] = np.iinfo(np.int64).min if dtype == "int64" else -np.inf
    module = module_of(keys.shape, dtype, count=7)
    holds(module, ONNXRUNTIME, OperandTypes("uint8", "int8"), [keys])
    (positions,) = oracle.run(module, get_mode(ONNXRUNTIME), [keys])
    for row, found in zip(keys.reshape(-1, 11), positions.reshape(-1, 7), strict=True):
        ranked = np.lexsort([np.arange(11), -np.maximum(row, -9)])
        assert found.tolist() == ranked[:7].tolist()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_running_sums_add_one_value_after_the_other(dtype: str, axis: int) -> None:
    x = np.random.default_rng(1).normal(0, 9, (3, 4, 5)).astype(dtype)
    module = module_of(x.shape, dtype, axis=axis)
    holds(module, ONNXRUNTIME, OperandTypes("uint8", "int8"), [x])
    (sums,) = oracle.run(module, get_mode(ONNXRUNTIME), [x])
    first, second, third = (np.take(x, index, axis) for index in range(3))
    np.testing.assert_array_equal(np.take(sums, 2, axis), first + second + third)


@pytest.mark.parametrize("options", [{"count": 12}, {"count": 0}, {"axis": 3}, {"axis": -1}])
def test_other_counts_and_axes_are_ill_typed(options: dict[str, int]) -> None:
    with pytest.raises(IllTyped):
        module_of((2, 3, 11), "float64" if "count" in options else "float32", **options)
