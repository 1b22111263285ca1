"""An `If` whose condition is computed at run time computes both branches, and selects the results of one."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import Unsupported
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference


def branch(op_type: str, name: str, *, shape: tuple[int, ...] = ()) -> bytes:
    b = OnnxBuilder()
    value = b.node(op_type, ["x"], [f"{name}1"])
    b.node("ReduceSum", [value], [f"{name}2"], keepdims=0)
    if shape:
        b.node("Reshape", [value, b.constant(list(shape))], [f"{name}3"])
    b.output(f"{name}3" if shape else f"{name}1", "float32")
    b.output(f"{name}2", "float32")
    return b.graph()


def model(condition_shape: list[int], otherwise: bytes | None = None) -> bytes:
    b = OnnxBuilder()
    b.input("x", "float32", [2, 3])
    b.input("c", "bool", condition_shape)
    then, other = branch("Exp", "t"), otherwise or branch("Neg", "e")
    b.node("If", ["c"], ["y", "z"], then_branch=then, else_branch=other)
    b.output("y", "float32")
    b.output("z", "float32")
    return b.build()


@pytest.mark.parametrize("shape", [[], [1]])
@pytest.mark.parametrize("value", [True, False])
def test_the_results_of_one_branch_are_selected(shape: list[int], value: bool) -> None:
    data = model(shape)
    inputs = [np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3), np.full(shape, value)]
    results = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), inputs)
    for result, wanted in zip(results, Reference(data, optimized=True)(inputs), strict=True):
        np.testing.assert_array_equal(result, wanted)
        assert result.shape == wanted.shape


def test_results_of_different_shapes_are_refused() -> None:
    message = r"If #0 chooses between results of float32 \[2, 3\] and float32 \[3, 2\] by c"
    with pytest.raises(Unsupported, match=message):
        import_model(model([], branch("Neg", "e", shape=(3, 2))))
