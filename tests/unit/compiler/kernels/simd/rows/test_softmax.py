"""Softmax of bytes equals the oracle, in the modes that look exponentials up in a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import ONNXRUNTIME, XNNPACK
from service.core.target import Target
from tests.support.qnn_models import Emit, float32, module_of
from tests.support.selected import RUNNING, build_selected, run_selected

HERE = RUNNING
INTO = {"uint8": QuantizedType("uint8", (1 / 256,), (0,)), "int8": QuantizedType("int8", (1 / 256,), (-128,))}


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
@pytest.mark.parametrize("shape", [(1, 3), (2, 17), (1, 3, 9, 64), (1, 2, 21, 197)], ids=str)
@pytest.mark.parametrize("storage", ["int8", "uint8"])
@pytest.mark.parametrize("mode", [ONNXRUNTIME, XNNPACK])
def test_equals_the_oracle(mode: str, storage: str, shape: tuple[int, ...], target: Target, tmp_path: Path) -> None:
    in_type = QuantizedType(storage, (float32(0.07),), (3,))

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.softmax(inputs[0], in_type, INTO[storage]))

    limits = np.iinfo(storage)
    x = np.random.default_rng(sum(shape)).integers(limits.min, limits.max + 1, shape).astype(storage)
    module = module_of([(shape, storage)], network)
    (expected,) = oracle.run(module, get_mode(mode), [x])
    selection, (actual,) = run_selected(module, target, mode, [x], tmp_path)
    np.testing.assert_array_equal(actual, expected)
    assert [layer["kernel"] for layer in selection.layers] == ["softmax"]


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
@pytest.mark.parametrize("columns", [5, 16, 37])
@pytest.mark.parametrize("storage", ["int8", "uint8"])
def test_the_number_of_columns_is_an_operand(storage: str, columns: int, target: Target, tmp_path: Path) -> None:
    """With one column, the products of ONNX Runtime's formula leave float32."""
    in_type, limits = QuantizedType(storage, (float32(0.07),), (3,)), np.iinfo(storage)

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.softmax(inputs[0], in_type, INTO[storage], length=inputs[1]))

    shape = (1, 3, 7, columns)
    module = module_of([(shape, storage), ((1,), "int32")], network)
    x = np.random.default_rng(columns).integers(limits.min, limits.max + 1, shape).astype(storage)
    selection, run = build_selected(module, target, ONNXRUNTIME, [x, np.zeros(1, np.int32)], tmp_path)
    assert [layer["kernel"] for layer in selection.layers] == ["softmax"]
    for count in (columns, 1, 2, columns // 2, columns - 1):
        inputs = [np.where(np.arange(columns) < count, x, limits.max).astype(storage), np.array([count], np.int32)]
        (expected,) = oracle.run(module, get_mode(ONNXRUNTIME), inputs)
        np.testing.assert_array_equal(run(inputs)[0][..., :count], expected[..., :count])
