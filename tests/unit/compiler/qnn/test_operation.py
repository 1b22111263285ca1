"""The operators: their text form, their inferred types, and the operands that they reject."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import from_source

from service.compiler.qnn import graph, ops
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.types import QuantizedType, accumulator_type
from tests.support.qnn_models import i8, module_of, u8

X = ((1, 6, 5, 4), "int8")
PER_AXIS = QuantizedType("int8", (0.5, 0.25, 0.125), axis=0)
WEIGHT = relax.const(np.ones((3, 3, 3, 4), "int8"))
ROWS = relax.const(np.ones((2, 4), "int8"))
BIAS = relax.const(np.ones(3, "int32"))
DOUBLE = QuantizedType("int8", (0.5,), expressed="float64")
BLOCKS = QuantizedType("int8", (0.5, 0.25), blocks=((2, 2),), grid=(1, 1, 2, 1))

CALLS: dict[str, tuple[Callable[[relax.Var], relax.Call], tuple[int, ...], str]] = {
    "quantize": (lambda x: ops.quantize(relax.const(np.ones((2, 3), "float32")), u8(0.5, 3)), (2, 3), "uint8"),
    "dequantize": (lambda x: ops.dequantize(x, i8(0.5)), (1, 6, 5, 4), "float32"),
    "requantize": (lambda x: ops.requantize(x, i8(0.5), u8(0.25, 7)), (1, 6, 5, 4), "uint8"),
    "storage_cast": (lambda x: ops.storage_cast(x, i8(0.5)), (1, 6, 5, 4), "int8"),
    "conv2d": (
        lambda x: ops.conv2d(x, WEIGHT, BIAS, i8(0.5), PER_AXIS, strides=(2, 1), padding=(1, 1, 1, 1)),
        (1, 3, 5, 3),
        "int32",
    ),
    "conv2d_transpose": (
        lambda x: ops.conv2d_transpose(
            x, WEIGHT, BIAS, i8(0.5), PER_AXIS, strides=(2, 1), padding=(1, 0, 0, 2), output_padding=(1, 0)
        ),
        (1, 13, 5, 3),
        "int32",
    ),
    "dense": (
        lambda x: ops.dense(
            relax.const(np.ones((2, 4), "int8")), relax.const(np.ones((3, 4), "int8")), BIAS, i8(1), i8(1)
        ),
        (2, 3),
        "int32",
    ),
    "add": (lambda x: ops.add(x, x, i8(0.5), i8(0.5), i8(1)), (1, 6, 5, 4), "int8"),
    "mul": (lambda x: ops.mul(x, relax.const(np.ones(4, "int8")), i8(0.5), i8(0.5), i8(1)), (1, 6, 5, 4), "int8"),
    "concatenate": (lambda x: ops.concatenate([x, x], [i8(0.5), i8(1)], i8(1), axis=3), (1, 6, 5, 8), "int8"),
    "avg_pool2d": (
        lambda x: ops.avg_pool2d(x, i8(1), i8(1), pool_size=(2, 2), strides=(2, 2), padding=(0, 0, 0, 1)),
        (1, 3, 3, 4),
        "int8",
    ),
    "max_pool2d": (lambda x: ops.max_pool2d(x, i8(1), i8(1), pool_size=(3, 3), strides=(1, 1)), (1, 4, 3, 4), "int8"),
    "mean": (lambda x: ops.mean(x, i8(1), i8(1), axes=(2, 1), keepdims=False), (1, 4), "int8"),
    "softmax": (lambda x: ops.softmax(x, i8(1), i8(1 / 256, -128)), (1, 6, 5, 4), "int8"),
}


def one(call: Callable[[relax.Var], relax.Call]) -> tvm.IRModule:
    return module_of([X], lambda emit, inputs: emit(call(inputs[0])))


@pytest.mark.parametrize("name", CALLS)
def test_result_type(name: str) -> None:
    call, shape, dtype = CALLS[name]
    (_, value, operation), *_ = graph.operations(graph.main_of(one(call)))
    assert operation is not None
    assert operation.name == f"qnn.{name}"
    assert (graph.shape_of(value), str(value.ty.dtype)) == (shape, dtype)


@pytest.mark.parametrize("name", CALLS)
def test_text_and_json_are_read_back(name: str) -> None:
    module = one(CALLS[name][0])
    assert f"R.qnn.{name}(" in module.script()
    tvm.ir.assert_structural_equal(from_source(module.script(show_meta=True)), module)
    tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(module)), module)


REFUSED: list[tuple[Callable[[relax.Var], relax.Call], str]] = [
    (lambda x: ops.dequantize(x, u8(1)), "operand 0 is int8, but its type is"),
    (lambda x: ops.quantize(x, u8(1)), "the operand is int8, but out_type expresses float32"),
    (lambda x: ops.dequantize(x, DOUBLE), "real values must be float32, float16 or bfloat16, not float64"),
    (lambda x: ops.dequantize(x, BLOCKS), "2 blocks of 2 do not fit 5 elements of dimension 2"),
    (lambda x: ops.storage_cast(x, u8(1)), "operand 0 is int8, but its type is"),
    (lambda x: ops.requantize(x, i8(1), BLOCKS), "out_type must be per-tensor"),
    (lambda x: ops.requantize(x, i8(1), QuantizedType("int8", (1.0,) * 3, axis=3)), "3 scales do not fit 4 indices"),
    (lambda x: ops.conv2d(x, WEIGHT, BIAS, i8(1), PER_AXIS, groups=2), "do not form 2 groups"),
    (lambda x: ops.conv2d(x, WEIGHT, BIAS, i8(1), QuantizedType("int8", (1.0,) * 4, axis=3)), "along axis 0, not 3"),
    (lambda x: ops.conv2d(x, WEIGHT, BIAS, i8(1), QuantizedType("int8", (1.0,) * 2, axis=0)), "2 scales do not fit 3"),
    (lambda x: ops.conv2d(x, WEIGHT, BIAS, i8(1), i8(1), strides=(0, 1)), "strides must be 2 integers of at least 1"),
    (lambda x: ops.conv2d(x, WEIGHT, BIAS, i8(1), i8(1), padding=(0, 0, 0, -1)), "padding must be 4 integers"),
    (lambda x: ops.conv2d(x, WEIGHT, BIAS, i8(1), i8(1), dilation=(3, 1)), "a window of 7 does not fit 6"),
    (lambda x: ops.conv2d(x, WEIGHT, relax.const(np.ones(4, "int32")), i8(1), i8(1)), "bias has shape \\[4\\], not"),
    (lambda x: ops.conv2d(x, WEIGHT, relax.const(np.ones(3, "int64"), "int64"), i8(1), i8(1)), "the bias is int64"),
    (lambda x: ops.conv2d(x, WEIGHT, None, i8(1), i8(1), accum_dtype="int16"), "accum_dtype int16 is not one of"),
    (lambda x: ops.dense(x, WEIGHT, None, i8(1), i8(1)), "operand 0 has 4 dimensions, not 2"),
    (lambda x: ops.add(x, relax.const(np.ones(3, "int8")), i8(1), i8(1), i8(1)), "do not broadcast"),
    (lambda x: ops.concatenate([x, x], [i8(1)], i8(1), axis=3), "one type for each"),
    (lambda x: ops.concatenate([x], [i8(1)], i8(1), axis=4), "axis 4 is outside"),
    (lambda x: ops.avg_pool2d(x, i8(1), u8(1), pool_size=(2, 2), strides=(1, 1)), "reads int8, but writes uint8"),
    (
        lambda x: ops.max_pool2d(x, i8(1), i8(1), pool_size=(2, 2), strides=(1, 1), padding=(2, 0, 0, 0)),
        "padding is not smaller",
    ),
    (lambda x: ops.mean(x, i8(1), i8(1), axes=(4,), keepdims=True), "axes \\[4\\] do not fit the shape"),
    (lambda x: ops.softmax(x, i8(1), i8(1), beta=0.0), "beta must be positive"),
]


@pytest.mark.parametrize("index", range(len(REFUSED)))
@pytest.mark.filterwarnings("ignore")
def test_operands_that_a_definition_forbids_are_refused(index: int) -> None:
    call, message = REFUSED[index]
    with pytest.raises(IllTyped, match=message):
        one(call)


def test_accumulators_may_be_wider() -> None:
    def body(emit: Callable[[relax.Call], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        sums = emit(ops.conv2d(inputs[0], WEIGHT, None, i8(1), PER_AXIS, accum_dtype="int64"))
        return emit(ops.requantize(sums, accumulator_type(i8(1), PER_AXIS, 3, "int64"), i8(1)))

    assert str(graph.main_of(module_of([X], body)).ret_ty.dtype) == "int8"
