"""Operators that LiteRT's default delegate computes only under some conditions, in the mode `xnnpack`.

Each case is a model of one operator. A test checks whether LiteRT's delegate computes the node, and compares every
value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn.graph import main_of, operations
from service.compiler.qnn.ops.builtin import CHANNELS, ELEMENTS, GEMM, OPTIMIZED, REFERENCE
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array
from tests.support import litert
from tests.support.compiling import compiled
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.tflite_builder import ModelBuilder, Quant, serialize
from tests.support.tflite_operator import Constant, End, ints, operator_model

Part = End | Constant
Case = Callable[[], bytes]
STORAGES = {"int8": np.int8, "uint8": np.uint8}
POINTS = {"int8": -3, "uint8": 120}


def _quant(storage: str, scale: float) -> Quant:
    return Quant(scale, POINTS[storage])


def _weights(storage: str, shape: Sequence[int], axis: int) -> Constant:
    """Returns weights with one scale for each channel, or with a single scale if the storage type supports only
    that.
    """
    limits, rng = np.iinfo(STORAGES[storage]), np.random.default_rng(5)
    data = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(STORAGES[storage])
    if storage == "uint8":
        return Constant(data, Quant(0.01, 131))
    return Constant(data, Quant([0.01 + 0.001 * index for index in range(shape[axis])], axis=axis))


def _bias(weights: Constant, channels: int, *, quantized: bool = True) -> Constant:
    assert weights.quant is not None
    scales = [0.05 * float(scale) for scale in weights.quant.scale_array]
    data = np.random.default_rng(6).integers(-900, 900, channels).astype(np.int32)
    return Constant(data, Quant(scales) if quantized else None)


def _layer(
    name: str, storage: str, shapes: Sequence[Sequence[int]], axis: int, options: Any, *, quantized: bool
) -> bytes:
    """Returns a model of one layer. `shapes` are the shapes of the input, the weights and the output. The steps of the
    output are large, because LiteRT would otherwise refuse a bias without a scale.
    """
    x, weights, y = shapes
    dtype, kernel = STORAGES[storage], _weights(storage, weights, axis)
    bias = _bias(kernel, weights[axis], quantized=quantized)
    parts: list[Part] = [End(x, dtype, _quant(storage, 0.05)), kernel, bias]
    return operator_model(name, parts, [End(y, dtype, _quant(storage, 0.6))], options)


def conv(storage: str, groups: int = 1, *, quantized: bool = True) -> bytes:
    options = schema.Conv2DOptionsT(strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
    shapes = (2, 7, 6, 4), (10, 3, 3, 4 // groups), (2, 7, 6, 10)
    return _layer("CONV_2D", storage, shapes, 0, options, quantized=quantized)


def depthwise(storage: str, channels: int, *, quantized: bool = True) -> bytes:
    options = schema.DepthwiseConv2DOptionsT(
        strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1, depthMultiplier=1
    )
    shapes = (2, 9, 8, channels), (1, 3, 3, channels), (2, 9, 8, channels)
    return _layer("DEPTHWISE_CONV_2D", storage, shapes, 3, options, quantized=quantized)


def dense(storage: str, *, quantized: bool = True) -> bytes:
    options = schema.FullyConnectedOptionsT(keepNumDims=False)
    return _layer("FULLY_CONNECTED", storage, ((30, 40), (9, 40), (30, 9)), 0, options, quantized=quantized)


def transposed(storage: str, kernel: int, channels: int, *, stride: int = 2, computed: bool = False) -> bytes:
    dtype, weights = STORAGES[storage], _weights(storage, (channels, kernel, kernel, 3), 0)
    shape = (2, 5 * stride, 4 * stride, channels)
    parts: list[Part] = [ints(*shape), weights, End((2, 5, 4, 3), dtype, _quant(storage, 0.05))]
    options = schema.TransposeConvOptionsT(strideH=stride, strideW=stride)
    data = operator_model("TRANSPOSE_CONV", parts, [End(shape, dtype, _quant(storage, 0.2))], options)
    return _computing(data, 0) if computed else data


def _computing(data: bytes, position: int) -> bytes:
    """Returns the model with its constant `position` replaced by an operator that adds 0 to that constant."""
    model = schema.ModelT.InitFromPackedBuf(data)
    (graph,) = model.subgraphs
    (operator,) = graph.operators
    constant = graph.tensors[operator.inputs[position]]
    model.buffers.append(schema.BufferT(data=np.zeros(len(model.buffers[constant.buffer].data), np.uint8)))
    model.operatorCodes.append(schema.OperatorCodeT(version=1))
    for name, buffer in (("zero", len(model.buffers) - 1), ("sum", 0)):
        tensor = schema.TensorT(shape=constant.shape, type=constant.type, buffer=buffer, name=name, hasRank=True)
        graph.tensors.append(tensor)
    zero, total = len(graph.tensors) - 2, len(graph.tensors) - 1
    addition = schema.OperatorT(
        opcodeIndex=len(model.operatorCodes) - 1,
        inputs=np.array([operator.inputs[position], zero], np.int32),
        outputs=np.array([total], np.int32),
        builtinOptions=schema.AddOptionsT(),
        builtinOptionsType=schema.BuiltinOptions.AddOptions,
    )
    operator.inputs = np.array(
        [total if at == position else index for at, index in enumerate(operator.inputs)], np.int32
    )
    graph.operators.insert(0, addition)
    return serialize(model)


def binary(name: str, storage: str, a: float, b: float, y: float, b_shape: Sequence[int] = (4, 5, 8)) -> bytes:
    dtype = STORAGES[storage]
    options = {"ADD": schema.AddOptionsT, "MUL": schema.MulOptionsT, "SUB": schema.SubOptionsT}[name]()
    parts = [End((4, 5, 8), dtype, _quant(storage, a)), End(b_shape, dtype, _quant(storage, b))]
    return operator_model(name, parts, [End((4, 5, 8), dtype, _quant(storage, y))], options)


def square(storage: str, x: float, y: float, activation: int = 0) -> bytes:
    builder, dtype = ModelBuilder(), STORAGES[storage]
    operand = builder.tensor("x", (4, 64), dtype, _quant(storage, x))
    result = builder.tensor("y", (4, 64), dtype, _quant(storage, y))
    builder.operator("MUL", [operand, operand], [result], schema.MulOptionsT(fusedActivationFunction=activation))
    return builder.build([operand], [result])


def unary(name: str, x: End, y: End, options: Any = None) -> bytes:
    return operator_model(name, [x], [y], options)


def quantize(x: str, y: str, ratio: float, count: int = 263) -> bytes:
    ends = End((count,), STORAGES[x], _quant(x, 0.1)), End((count,), STORAGES[y], _quant(y, 0.1 / ratio))
    return unary("QUANTIZE", *ends)


def leaky(storage: str, ratio: float, alpha: float) -> bytes:
    dtype = STORAGES[storage]
    ends = End((2, 200), dtype, _quant(storage, 0.1)), End((2, 200), dtype, _quant(storage, 0.1 / ratio))
    return unary("LEAKY_RELU", *ends, schema.LeakyReluOptionsT(alpha=alpha))


def curve(name: str, shape: Sequence[int] = (5, 90)) -> bytes:
    y = {"ELU": Quant(0.2, 5), "LOGISTIC": Quant(1 / 256, -128), "TANH": Quant(1 / 128, 0)}[name]
    return unary(name, End(shape, np.int8, Quant(0.1, -3)), End(shape, np.int8, y))


def activated(storage: str, scale: float, activation: int) -> bytes:
    """Returns a pool with an activation whose bound is exactly halfway between two stored values. Input and output have
    one type.
    """
    x, y = (End(shape, STORAGES[storage], _quant(storage, scale)) for shape in ((1, 6, 6, 9), (1, 3, 3, 9)))
    options = schema.Pool2DOptionsT(
        strideH=2, strideW=2, filterHeight=2, filterWidth=2, fusedActivationFunction=activation
    )
    return unary("MAX_POOL_2D", x, y, options)


def mean(storage: str, shape: Sequence[int], axes: Sequence[int], *, computed: bool = False) -> bytes:
    """Returns a mean whose input and output have the same scale, so that many means are halfway between two steps."""
    dtype, quant = STORAGES[storage], Quant(0.3, {"int8": 3, "uint8": 255}[storage])
    left = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    parts: list[Part] = [End(shape, dtype, quant), ints(*axes)]
    data = operator_model("MEAN", parts, [End(left, dtype, quant)], schema.ReducerOptionsT(keepDims=False))
    return _computing(data, 1) if computed else data


def resize(storage: str, *, computed: bool) -> bytes:
    dtype, quant = STORAGES[storage], _quant(storage, 0.1)
    parts: list[Part] = [End((1, 4, 5, 3), dtype, quant), ints(7, 9)]
    data = operator_model("RESIZE_BILINEAR", parts, [End((1, 7, 9, 3), dtype, quant)], schema.ResizeBilinearOptionsT())
    return _computing(data, 1) if computed else data


def products(rhs: Part, lhs: Sequence[int] = (2, 5, 30)) -> bytes:
    options = schema.BatchMatMulOptionsT()
    ends = End(lhs, np.int8, Quant(0.05, -3)), End((*lhs[:-1], 4), np.int8, Quant(0.3, 7))
    return operator_model("BATCH_MATMUL", [ends[0], rhs], [ends[1]], options)


def _factor(shape: Sequence[int], point: int) -> Constant:
    return Constant(np.random.default_rng(8).integers(-128, 128, shape).astype(np.int8), Quant(0.02, point))


TAKEN: dict[str, Case] = {
    **{f"conv {storage}": partial(conv, storage) for storage in STORAGES},
    "conv int8 in groups": partial(conv, "int8", groups=2),
    **{f"depthwise {storage}": partial(depthwise, storage, 11) for storage in STORAGES},
    **{f"dense {storage}": partial(dense, storage) for storage in STORAGES},
    **{f"transposed {storage}": partial(transposed, storage, 3, 9) for storage in STORAGES},
    "transposed, kernel of the stride's size": partial(transposed, "int8", 2, 9),
    **{
        f"{name} {storage} {a} {b}": partial(binary, name, storage, a, b, 0.1)
        for name in ("ADD", "SUB")
        for storage in STORAGES
        for a, b in ((0.1, 0.1), (20.0, 0.1), (0.1 / 1000, 0.1), (0.1, 0.1 / 1000))
    },
    **{f"MUL {storage}": partial(binary, "MUL", storage, 0.05, 0.07, 0.9) for storage in STORAGES},
    "MUL, an output of few values": partial(binary, "MUL", "int8", 0.01, 0.01, 6.0),
    **{
        f"square {storage} {y} {activation}": partial(square, storage, 0.05, y, activation)
        for storage in STORAGES
        for y in (0.005, 0.095, 0.15, 0.16)
        for activation in (0, 1, 3)
    },
    **{
        f"bound between two values, {storage} {scale} {activation}": partial(activated, storage, scale, activation)
        for storage in STORAGES
        for scale, activation in ((0.16, 3), (0.48, 3), (4.0, 3), (0.4, 2))
    },
    "QUANTIZE int8": partial(quantize, "int8", "int8", 0.37),
    "QUANTIZE uint8": partial(quantize, "uint8", "uint8", 1.9),
    "LEAKY_RELU": partial(leaky, "uint8", 0.7, 0.1),
    "LEAKY_RELU, negative": partial(leaky, "int8", 1.3, -2.0),
    **{name: partial(curve, name) for name in ("ELU", "LOGISTIC", "TANH")},
    **{
        f"mean {storage} {axes}": partial(mean, storage, (2, 2, 7, 60), axes)
        for storage in STORAGES
        for axes in ((1, 2), (1,), (2,), (3,), (0, 1, 2))
    },
    **{f"resize {storage}": partial(resize, storage, computed=False) for storage in STORAGES},
    "product by a constant": partial(products, _factor((30, 4), 0)),
    "product by a constant for each batch": partial(products, _factor((2, 30, 4), 0)),
    "product by another input": partial(products, End((2, 30, 4), np.int8, Quant(0.02, 0))),
}
# For each case that the delegate does not compute, the LiteRT kernel that does.
LEFT: dict[str, tuple[str, Case]] = {
    **{f"conv {storage}": (GEMM, partial(conv, storage, quantized=False)) for storage in STORAGES},
    "conv int8 in groups": (REFERENCE, partial(conv, "int8", groups=2, quantized=False)),
    **{
        f"depthwise int8 of {channels}": (CHANNELS, partial(depthwise, "int8", channels, quantized=False))
        for channels in (5, 8, 11, 16)
    },
    "depthwise uint8": (REFERENCE, partial(depthwise, "uint8", 11, quantized=False)),
    **{f"dense {storage}": (GEMM, partial(dense, storage, quantized=False)) for storage in STORAGES},
    **{
        f"transposed int8 of {channels}, {kernel} at {stride}": (
            CHANNELS,
            partial(transposed, "int8", kernel, channels, stride=stride),
        )
        for channels in (3, 8, 9)
        for kernel, stride in ((1, 2), (2, 3))
    },
    **{
        f"transposed uint8 of {channels}": (ELEMENTS, partial(transposed, "uint8", 1, channels))
        for channels in (1, 3, 9)
    },
    "transposed, computed size": (CHANNELS, partial(transposed, "int8", 3, 9, computed=True)),
    **{
        f"{name} {storage} {a} {y}": (REFERENCE, partial(binary, name, storage, a, 0.1, y))
        for name in ("ADD", "SUB")
        for storage in STORAGES
        for a, y in ((0.1, 200.0), (0.1 / 3000, 0.1), (1.0e-7, 0.1), (0.1, 0.1 * 4096))
    },
    "SUB, an output of many steps": (REFERENCE, partial(binary, "SUB", "int8", 30.0, 0.1, 0.1)),
    "MUL, an output of one value": (REFERENCE, partial(binary, "MUL", "int8", 0.001, 0.001, 0.1)),
    "square, an output of one value": (REFERENCE, partial(square, "int8", 0.001, 0.1)),
    **{
        f"QUANTIZE {x} to {y} by {ratio}, {count}": (ELEMENTS, partial(quantize, x, y, ratio, count))
        for x, y in (("int8", "uint8"), ("uint8", "int8"))
        for ratio in (0.11, 0.473, 1.0, 2.3)
        for count in (7, 256, 263)
    },
    "QUANTIZE to a fine scale": (ELEMENTS, partial(quantize, "int8", "int8", 200.0)),
    "LEAKY_RELU of slope 0": (REFERENCE, partial(leaky, "int8", 0.7, 0.0)),
    "LEAKY_RELU of a small slope": (REFERENCE, partial(leaky, "uint8", 0.7, 0.001)),
    **{
        f"{name} of seven dimensions": (REFERENCE, partial(curve, name, (1, 2, 1, 3, 2, 2, 9)))
        for name in ("ELU", "TANH")
    },
    "resize int8 to a computed size": (REFERENCE, partial(resize, "int8", computed=True)),
    "product by what is not symmetric": (REFERENCE, partial(products, _factor((30, 4), 9))),
}
DECLINED: dict[str, tuple[str, Case]] = {
    "mean over computed axes": (OPTIMIZED, partial(mean, "int8", (2, 2, 7, 60), (1, 2), computed=True)),
    "resize uint8 to a computed size": (OPTIMIZED, partial(resize, "uint8", computed=True)),
    "ADD beyond 16 bits": (REFERENCE, partial(binary, "ADD", "int8", 90.0, 0.1, 0.1)),
    "MUL beyond 16 bits": (REFERENCE, partial(binary, "MUL", "int8", 9.0, 9.0, 0.1)),
}
# Cases for compiled code: each formula once, with sizes that are not a multiple of a vector's size.
BUILT: dict[str, Case] = {
    "conv": LEFT["conv int8"][1],
    "conv uint8": LEFT["conv uint8"][1],
    "depthwise": LEFT["depthwise int8 of 11"][1],
    "dense": LEFT["dense uint8"][1],
    "transposed int8": LEFT["transposed int8 of 9, 2 at 3"][1],
    "transposed uint8": LEFT["transposed uint8 of 9"][1],
    "sum": LEFT["ADD int8 0.1 200.0"][1],
    "quantize": LEFT["QUANTIZE int8 to uint8 by 0.473, 263"][1],
    "square": TAKEN["square uint8 0.095 3"],
    "mean": TAKEN["mean uint8 (1, 2)"],
    "activation": TAKEN["bound between two values, uint8 0.16 3"],
    "product": TAKEN["product by a constant"],
    "curve": TAKEN["ELU"],
}


def kernels(data: bytes) -> set[str]:
    """Returns the names of LiteRT kernels that the importer stores."""
    found = operations(main_of(import_model(data).module))
    return {operation.builtin for _, _, operation in found if operation is not None and operation.builtin is not None}


def is_delegated(data: bytes) -> bool:
    """Returns true if LiteRT's default delegate computes the model's last operator."""
    details: list[dict[str, Any]] = litert.interpreter(data, reference=False)._get_ops_details()
    return str(details[-1]["op_name"]) == "DELEGATE"


@pytest.mark.parametrize("name", TAKEN)
def test_a_node_that_the_delegate_takes(name: str) -> None:
    data = TAKEN[name]()
    assert is_delegated(data)
    assert not kernels(data)
    assert_oracle_equals_litert(data, samples=12, numerics=XNNPACK)


@pytest.mark.parametrize("name", LEFT)
def test_a_node_that_the_delegate_leaves(name: str) -> None:
    kernel, case = LEFT[name]
    data = case()
    assert not is_delegated(data)
    assert kernels(data) == {kernel}
    assert_oracle_equals_litert(data, samples=12, numerics=XNNPACK)


@pytest.mark.parametrize("name", [name for name in LEFT if "of seven dimensions" not in name])
def test_the_reference_mode_ignores_what_the_delegate_leaves(name: str) -> None:
    assert_oracle_equals_litert(LEFT[name][1](), samples=2, numerics=LITERT_REFERENCE)


@pytest.mark.parametrize("name", DECLINED)
def test_a_kernel_that_the_mode_does_not_reproduce_is_declined(name: str) -> None:
    kernel, case = DECLINED[name]
    data = case()
    assert not is_delegated(data)
    assert kernels(data) == {kernel}
    with pytest.raises(UnsupportedOperator) as raised:
        assert_oracle_equals_litert(data, samples=1, numerics=XNNPACK)
    assert raised.value.hint is not None
    assert LITERT_REFERENCE in raised.value.hint


@pytest.mark.parametrize("name", BUILT)
def test_compiled_code_equals_litert(name: str, tmp_path: Path) -> None:
    data, path = BUILT[name](), tmp_path / "model.tflite"
    path.write_bytes(data)
    model, loaded = compiled(path, XNNPACK, tmp_path), litert.interpreter(data, reference=False)
    rng = np.random.default_rng(0)
    for _ in range(20):
        inputs = litert.random_inputs(loaded, rng)
        expected: Array = litert.run(loaded, inputs)[0]
        np.testing.assert_array_equal(model.run(inputs)[0], expected)
