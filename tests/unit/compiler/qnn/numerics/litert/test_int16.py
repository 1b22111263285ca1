"""16x8 quantization: the canonical form of every operator gives the oracle's result for all operands."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.targets import OperandTypes
from tests.support.canonical import holds
from tests.support.litert import MODES
from tests.support.qnn_models import Emit, float32, module_of

OPERANDS = [OperandTypes("uint8", "int8"), OperandTypes("int16", "int16")]
LOW, HIGH = -(1 << 15), (1 << 15) - 1


def i16(scale: float, low: int = LOW, high: int = HIGH) -> QuantizedType:
    return QuantizedType("int16", (float32(scale),), storage_min=low, storage_max=high)


X, Y = i16(3e-4), i16(5e-4, -20000, 30000)
FRACTION = QuantizedType("int16", (1 / 32768,))


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Returns random values, and rows of extreme values, whose sums of products exceed 32 bits."""
    rng = np.random.default_rng(seed)
    x = rng.integers(LOW, HIGH, shape, endpoint=True).astype(np.int16)
    x.reshape(-1, shape[-1])[0] = LOW
    x.reshape(-1, shape[-1])[-1] = HIGH
    return x


@pytest.mark.parametrize("operands", OPERANDS, ids=lambda operands: operands.weight)
@pytest.mark.parametrize("kind", ["conv2d", "deep", "grouped", "depthwise", "conv2d_transpose", "dense"])
def test_layer(kind: str, operands: OperandTypes) -> None:
    rng = np.random.default_rng(1)
    channels, groups = {"dense": 600, "deep": 64}.get(kind, 12), {"grouped": 3, "depthwise": 12}.get(kind, 1)
    filters = 12
    weight_type = QuantizedType("int8", tuple(map(float32, rng.uniform(1e-3, 2e-2, filters))), axis=0)
    kernel = () if kind == "dense" else (3, 3)
    weight = rng.integers(-127, 127, (filters, *kernel, channels // groups), endpoint=True).astype(np.int8)
    weight[0] = -127
    weights, bias = relax.const(weight), relax.const(rng.integers(-(10**10), 10**10, filters), "int64")
    x = values((3, channels) if kind == "dense" else (2, 6, 5, channels))
    out_type = i16(0.3)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        common = (inputs[0], weights, bias, X, weight_type)
        if kind == "dense":
            call = ops.dense(*common, accum_dtype="int64")
        elif kind == "conv2d_transpose":
            call = ops.conv2d_transpose(*common, strides=(2, 2), padding=(1, 1, 0, 1), accum_dtype="int64")
        else:
            call = ops.conv2d(*common, padding=(1, 1, 1, 1), groups=groups, accum_dtype="int64")
        sums = emit(call)
        in_type = accumulator_type(X, weight_type, len(sums.ty.shape) - 1, "int64")
        return emit(ops.requantize(sums, in_type, out_type))

    holds(module_of([(x.shape, "int16")], body), MODES[0], operands, [x])


@pytest.mark.parametrize("axis", [None, 0])
def test_dense_layer_without_a_bias(axis: int | None) -> None:
    """LiteRT has two kernels for such a layer. In one of them, sums that exceed 32 bits wrap around."""
    rng = np.random.default_rng(1)
    scales = tuple(map(float32, np.geomspace(1e-5, 1.0, 6) if axis == 0 else [0.01]))
    weight_type = QuantizedType("int8", scales, axis=axis)
    weight = relax.const(rng.integers(-127, 127, (6, 900), endpoint=True).astype(np.int8))
    x = values((4, 900))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        sums = emit(ops.dense(inputs[0], weight, None, X, weight_type, accum_dtype="int64"))
        return emit(ops.requantize(sums, accumulator_type(X, weight_type, 1, "int64"), i16(3e-3)))

    for mode in MODES:
        holds(module_of([(x.shape, "int16")], body), mode, OPERANDS[0], [x])


CALLS = {
    "add": lambda x: ops.add(x, x, X, Y, Y),
    "mul": lambda x: ops.mul(x, x, X, Y, Y),
    "avg_pool2d": lambda x: ops.avg_pool2d(x, X, X, pool_size=(3, 2), strides=(2, 2), padding=(1, 0, 0, 1)),
    "max_pool2d": lambda x: ops.max_pool2d(x, X, X, pool_size=(3, 2), strides=(2, 2), padding=(1, 0, 0, 1)),
    "mean": lambda x: ops.mean(x, X, Y, axes=(1, 2), keepdims=False),
    "softmax": lambda x: ops.softmax(x, X, FRACTION, beta=0.7),
    "logistic": lambda x: ops.unary("logistic", x, X, FRACTION),
    "tanh": lambda x: ops.unary("tanh", x, X, FRACTION),
    "relu": lambda x: ops.unary("relu", x, X, i16(5e-4, 0)),
    "leaky_relu": lambda x: ops.unary("leaky_relu", x, X, Y, alpha=0.3),
    "requantize": lambda x: ops.requantize(x, X, i16(2e-4)),
    "requantize to 8 bits": lambda x: ops.requantize(x, X, QuantizedType("int8", (0.0625,), (5,))),
    "concatenate": lambda x: ops.concatenate([x, x], [X, X], X, axis=3),
    "dequantize": lambda x: ops.dequantize(x, X),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["logistic", "tanh"])
def test_operator_with_two_kernels(name: str, mode: str) -> None:
    assert_operator(name, mode)


@pytest.mark.parametrize("name", CALLS)
def test_operator(name: str) -> None:
    """LiteRT has a single kernel for each of these operators: see `test_modes_share_formulas`."""
    assert_operator(name, MODES[0])


def test_modes_share_formulas() -> None:
    first, second = (get_mode(mode).formulas for mode in MODES)
    differ = {row for row in first if row.endswith(":int16") and first[row] is not second[row]}
    assert differ == {"dense+requantize:int16", "logistic:int16", "sum:int16", "tanh:int16"}


def assert_operator(name: str, mode: str) -> None:
    x = values((2, 6, 5, 7))
    holds(module_of([(x.shape, "int16")], lambda emit, inputs: emit(CALLS[name](inputs[0]))), mode, OPERANDS[0], [x])


@pytest.mark.parametrize("mode", MODES)
def test_quantize(mode: str) -> None:
    """The values include halves, and values beyond 32 bits."""
    odd = [np.inf, -np.inf, 1e6, -1e6, 6.4e5, 0.5 * X.scale]
    x = np.append(np.random.default_rng(0).normal(0, 5, 40), odd).astype(np.float32)
    holds(module_of([(x.shape, "float32")], lambda emit, v: emit(ops.quantize(v[0], X))), mode, OPERANDS[0], [x])


@pytest.mark.parametrize("depth", [517, 541])
def test_sums_may_exceed_32_bits(depth: int) -> None:
    """Sums of more than 516 products of extreme values exceed 32 bits. Accumulators have 64 bits, so nothing wraps. 517
    terms can be divided into parts that fit 32 bits; 541 is prime.
    """
    x, weight = np.full((1, depth), LOW, np.int16), relax.const(np.full((1, depth), -127, np.int8))
    weight_type = QuantizedType("int8", (1.0,))
    module = module_of(
        [(x.shape, "int16")], lambda emit, v: emit(ops.dense(v[0], weight, None, X, weight_type, accum_dtype="int64"))
    )
    (total,) = oracle.run(module, get_mode(MODES[0]), [x])
    assert int(total[0, 0]) == depth * 127 * 32768 > 2**31
    holds(module, MODES[0], OPERANDS[0], [x])


def test_formulas_for_16_bits_have_separate_keys() -> None:
    mode, x = get_mode("litert-reference"), (1, 4)
    wide = module_of([(x, "int16")], lambda emit, v: emit(ops.unary("tanh", v[0], X, FRACTION)))
    narrow_type = QuantizedType("int8", (0.5,))
    narrow = module_of([(x, "int8")], lambda emit, v: emit(ops.unary("tanh", v[0], narrow_type, narrow_type)))
    keys = [
        mode.key(operation)
        for module in (wide, narrow)
        for _, _, operation in graph.operations(graph.main_of(module))
        if operation is not None
    ]
    assert keys == ["tanh:int16", "tanh"]
