"""A sequence of operators that computes each element from one 8-bit value becomes a look-up. The oracle gives the same
results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.ops.real import FUNCTIONS as REAL_FUNCTIONS
from service.compiler.qnn.passes import run_pass
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.qnn_models import Emit, compile_and_run, i8, module_of, u8

SHAPE = (1, 256)
EVERY_BYTE = np.arange(256, dtype=np.uint8).reshape(SHAPE)
IN, OUT = u8(0.05, 128), u8(0.02, 10)

Body = Callable[[Emit, list[relax.Var]], Any]


def _after(body: Body, *inputs: Any) -> list[str]:
    """Runs the pass, checks that the results are the same, and returns the remaining operators."""
    given = inputs or (EVERY_BYTE,)
    module = module_of([(array.shape, str(array.dtype)) for array in given], body)
    mode = get_mode(ONNXRUNTIME)
    result, _ = run_pass("tables made", module, mode)
    for expected, got in zip(oracle.run(module, mode, given), oracle.run(result, mode, given), strict=True):
        np.testing.assert_array_equal(got, expected)
    values = [value for _, value in graph.bindings(graph.main_of(result)) if isinstance(value, relax.Call)]
    return [str(value.op.name).removeprefix("relax.").removeprefix("qnn.") for value in values]


def _scalar(value: float) -> relax.Expr:
    return relax.const(np.float32(value), "float32")


def _gelu(emit: Emit, x: relax.Var) -> relax.Var:
    """Returns GELU as PyTorch's exporter writes it and ONNX Runtime quantizes it."""
    real = emit(ops.dequantize(x, IN))
    erf = emit(ops.real_function("erf", emit(relax.op.divide(real, _scalar(math.sqrt(2))))))
    gate = emit(ops.quantize(emit(relax.op.add(erf, _scalar(1))), OUT))
    return emit(ops.mul(x, gate, IN, OUT, OUT))


def test_gelu_is_one_table() -> None:
    assert _after(lambda emit, inputs: _gelu(emit, inputs[0])) == ["table"]


@pytest.mark.parametrize("function", REAL_FUNCTIONS)
def test_a_function_times_its_operand_is_one_table(function: str) -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        real = emit(ops.dequantize(inputs[0], IN))
        return emit(ops.quantize(emit(relax.op.multiply(real, emit(ops.real_function(function, real)))), OUT))

    assert _after(body) == ["table"]


def test_a_function_in_float64_is_one_table() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        wide = emit(relax.op.astype(emit(ops.dequantize(inputs[0], IN)), "float64"))
        return emit(ops.quantize(emit(relax.op.astype(emit(relax.op.sin(wide)), "float32")), OUT))

    assert _after(body) == ["table"]


def test_a_lowered_table_equals_the_oracle() -> None:
    values = np.random.default_rng(0).integers(-128, 128, 256).tolist()
    module = module_of([(SHAPE, "uint8")], lambda emit, inputs: emit(ops.table(inputs[0], IN, i8(1.0), values)))
    mode = get_mode(ONNXRUNTIME)

    def lower(builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], found: Any) -> relax.Expr:
        return mode.formula(found).lower(found, builder, *args)

    np.testing.assert_array_equal(compile_and_run(graph.rewrite(module, lower), [EVERY_BYTE])[0], values)
    np.testing.assert_array_equal(oracle.run(module, mode, [EVERY_BYTE])[0][0], values)


def test_a_single_operator_is_kept() -> None:
    assert _after(lambda emit, inputs: emit(ops.requantize(inputs[0], IN, OUT))) == ["requantize"]


def test_an_intermediate_value_with_readers_becomes_a_table_too() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        first = emit(ops.quantize(emit(relax.op.exp(emit(ops.dequantize(inputs[0], IN)))), OUT))
        return [first, emit(ops.requantize(first, OUT, IN))]

    assert _after(body) == ["table", "table"]


def test_two_tensors_do_not_become_a_table() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        lhs, rhs = (emit(ops.requantize(x, IN, OUT)) for x in inputs)
        return emit(ops.add(lhs, rhs, OUT, OUT, IN))

    assert _after(body, EVERY_BYTE, EVERY_BYTE[:, ::-1].copy()) == ["requantize", "requantize", "add"]


def test_a_constant_that_varies_does_not_become_a_table() -> None:
    other = relax.const(np.arange(256, dtype=np.float32).reshape(SHAPE), "float32")

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.quantize(emit(relax.op.add(emit(ops.dequantize(inputs[0], IN)), other)), OUT))

    assert _after(body) == ["dequantize", "add", "quantize"]


def test_operators_that_move_elements_do_not_become_a_table() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        moved = emit(relax.op.reshape(emit(ops.dequantize(inputs[0], IN)), [16, 16]))
        return emit(ops.quantize(moved, OUT))

    assert _after(body) == ["dequantize", "reshape", "quantize"]


def test_a_repeated_tensor_does_not_become_a_table() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        wide = relax.const(np.zeros((2, 256), np.float32), "float32")
        return emit(ops.quantize(emit(relax.op.add(emit(ops.dequantize(inputs[0], IN)), wide)), OUT))

    assert _after(body) == ["dequantize", "add", "quantize"]


def test_scales_per_channel_do_not_become_a_table() -> None:
    each = QuantizedType("uint8", tuple(0.01 * (index + 1) for index in range(256)), (0,) * 256, axis=1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.quantize(emit(ops.dequantize(inputs[0], each)), OUT))

    assert _after(body) == ["dequantize", "quantize"]


@pytest.mark.parametrize(("values", "message"), [([0] * 255, "not 255"), ([300] * 256, "outside the range of uint8")])
def test_a_table_with_invalid_values_is_refused(values: list[int], message: str) -> None:
    with pytest.raises(IllTyped, match=message):
        module_of([(SHAPE, "uint8")], lambda emit, inputs: emit(ops.table(inputs[0], IN, OUT, values)))
