"""Rows that are written at computed positions: generated code is compared with the oracle, and the oracle with applying
one update at a time.
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
from service.compiler.qnn.ops.scattering import REDUCTIONS
from service.compiler.targets import OperandTypes
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.canonical import holds

ROWS, WIDTH, UPDATES = 5, 3, 9
ONE_BY_ONE = {
    "replace": lambda old, new: new,
    "add": lambda old, new: old + new,
    "multiply": lambda old, new: old * new,
    "max": lambda old, new: old if old > new else new,
    "min": lambda old, new: old if old < new else new,
}


def module_of(dtype: str, reduction: str, positions: tuple[int, ...] = (UPDATES,), rows: int = ROWS) -> tvm.IRModule:
    shapes = (((rows, WIDTH), dtype), (positions, "int64"), ((UPDATES, WIDTH), dtype))
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType(*kind)) for name, kind in zip("xpu", shapes, strict=True)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, ops.scatter_rows(*params, reduction=reduction), "result"))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
def test_updates_are_applied_in_order_and_inside_the_data(dtype: str, reduction: str) -> None:
    rng = np.random.default_rng(0)
    data, updates = (rng.normal(0, 9, (count, WIDTH)).astype(dtype) for count in (ROWS, UPDATES))
    if dtype == "float32":
        data[0, :2], updates[:2, 1] = np.nan, (-0.0, np.nan)
    positions = np.array([0, 0, 1, 1, 1, 7, -(2**40), 4, 2])
    module = module_of(dtype, reduction)
    holds(module, ONNXRUNTIME, OperandTypes("uint8", "int8"), [data, positions, updates])
    (written,) = oracle.run(module, get_mode(ONNXRUNTIME), [data, positions, updates])
    expected = data.copy()
    with np.errstate(over="ignore"):  # int8 wraps
        for position, update in zip(np.clip(positions, 0, ROWS - 1), updates, strict=True):
            for column in range(WIDTH):
                expected[position, column] = ONE_BY_ONE[reduction](expected[position, column], update[column])
    np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize(
    ("dtype", "reduction", "positions", "rows"),
    [
        ("float32", "mean", (UPDATES,), ROWS),
        ("bool", "add", (UPDATES,), ROWS),
        ("float32", "add", (UPDATES - 1,), ROWS),
        ("float32", "add", (UPDATES,), 0),
    ],
)
def test_other_operands_are_ill_typed(dtype: str, reduction: str, positions: tuple[int, ...], rows: int) -> None:
    with pytest.raises(IllTyped):
        module_of(dtype, reduction, positions, rows)
