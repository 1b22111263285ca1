"""Modules of one operator with random parameters, for `tools.kernel`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.ops.unary import FUNCTIONS
from service.compiler.qnn.types import QuantizedType, accumulator_type

_BIAS = 5000
_WEIGHTS_SCALE, _INPUT_SCALE, _OUTPUT_SCALE = 0.01, 0.05, 0.1


@dataclass(frozen=True)
class Parameters:
    """The parameters of the command line that describe an operator.

    Attributes:
        shape: the shape of each input: `[N, H, W, C]`, or `[N, K]` for dense layers.
        channels: the number of output channels of convolutions and dense layers.
        window: rows and columns of the window of convolutions and pools.
        strides: the stride of the window in rows and in columns.
        padding: True if the window is padded so that the output has the size of the input divided by the stride.
        storage: int8 or uint8.
        inputs: the number of inputs of a concatenation.
    """

    shape: tuple[int, ...]
    channels: int
    window: tuple[int, int]
    strides: tuple[int, int]
    padding: bool
    storage: str
    inputs: int

    @property
    def in_type(self) -> QuantizedType:
        return self._activation_type(_INPUT_SCALE, 3)

    @property
    def out_type(self) -> QuantizedType:
        return self._activation_type(_OUTPUT_SCALE, -5)

    @property
    def margins(self) -> tuple[int, int, int, int]:
        """Returns the padding: top, left, bottom, right."""
        if not self.padding:
            return (0, 0, 0, 0)
        sizes = zip(self.shape[1:3], self.window, self.strides, strict=True)
        rows, columns = (max(0, (-(-size // step) - 1) * step + extent - size) for size, extent, step in sizes)
        return rows // 2, columns // 2, rows - rows // 2, columns - columns // 2

    def _activation_type(self, scale: float, zero_point: int) -> QuantizedType:
        offset = 128 if self.storage == "uint8" else 0
        return QuantizedType(self.storage, (float(np.float32(scale)),), (zero_point + offset,))


Emit = Callable[[relax.Expr], relax.Var]
Operator = Callable[[Emit, list[relax.Var], Parameters], relax.Var]


def module_of(name: str, parameters: Parameters) -> tvm.IRModule:
    """Returns a QNN module whose `main` applies the operator `name` of `OPERATORS`."""
    count = {"add": 2, "mul": 2, "sub": 2, "concatenate": parameters.inputs}.get(name, 1)
    ty = relax.TensorType(list(parameters.shape), parameters.storage)
    inputs = [relax.Var(f"x{index}", ty) for index in range(count)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = OPERATORS[name](lambda expr: graph.emit(builder, expr), inputs, parameters)
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def macs_of(name: str, parameters: Parameters) -> int:
    """Returns the multiply-accumulates of one call, including those on padding; 0 for operators without products."""
    if name == "dense":
        return int(np.prod(parameters.shape)) * parameters.channels
    if name not in ("conv2d", "depthwise"):
        return 0
    batch, height, width, depth = parameters.shape
    top, left, bottom, right = parameters.margins
    rows = (height + top + bottom - parameters.window[0]) // parameters.strides[0] + 1
    columns = (width + left + right - parameters.window[1]) // parameters.strides[1] + 1
    per_pixel = depth if name == "depthwise" else depth * parameters.channels
    return batch * rows * columns * per_pixel * parameters.window[0] * parameters.window[1]


def _convolution(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
    return _conv2d(emit, inputs[0], parameters, parameters.channels, 1)


def _depthwise(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
    depth = parameters.shape[-1]
    return _conv2d(emit, inputs[0], parameters, depth, depth)


def _conv2d(emit: Emit, x: relax.Var, parameters: Parameters, channels: int, groups: int) -> relax.Var:
    weight, weight_type, bias = _weights((channels, *parameters.window, parameters.shape[-1] // groups), parameters)
    accumulate = partial(ops.conv2d, strides=parameters.strides, padding=parameters.margins, groups=groups)
    accumulators = emit(accumulate(x, weight, bias, parameters.in_type, weight_type))
    return emit(ops.requantize(accumulators, accumulator_type(parameters.in_type, weight_type, 3), parameters.out_type))


def _dense(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
    weight, weight_type, bias = _weights((parameters.channels, parameters.shape[-1]), parameters)
    accumulators = emit(ops.dense(inputs[0], weight, bias, parameters.in_type, weight_type))
    return emit(ops.requantize(accumulators, accumulator_type(parameters.in_type, weight_type, 1), parameters.out_type))


def _weights(shape: tuple[int, ...], parameters: Parameters) -> tuple[relax.Constant, QuantizedType, relax.Constant]:
    """Returns random weights, their type, and a bias: int8 with a scale for each channel, or uint8 with one scale."""
    rng = np.random.default_rng(0)
    low, high = (-127, 128) if parameters.storage == "int8" else (0, 256)
    values = rng.integers(low, high, shape).astype(parameters.storage)
    scales = tuple(map(float, (_WEIGHTS_SCALE * rng.uniform(0.5, 2, shape[0])).astype(np.float32)))
    per_axis = QuantizedType("int8", scales, (0,) * shape[0], axis=0)
    per_tensor = QuantizedType("uint8", scales[:1], (128,))
    bias = rng.integers(-_BIAS, _BIAS, shape[0]).astype(np.int32)
    return relax.const(values), per_axis if parameters.storage == "int8" else per_tensor, relax.const(bias)


def _binary(function: Callable[..., relax.Call]) -> Operator:
    def build(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
        types = parameters.in_type, parameters.out_type, parameters.out_type
        return emit(function(*inputs, *types))

    return build


def _pool(function: Callable[..., relax.Call]) -> Operator:
    def build(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
        window = {"pool_size": parameters.window, "strides": parameters.strides, "padding": parameters.margins}
        return emit(function(inputs[0], parameters.in_type, parameters.in_type, **window))

    return build


def _requantize(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
    return emit(ops.requantize(inputs[0], parameters.in_type, parameters.out_type))


def _softmax(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
    zero_point = 0 if parameters.storage == "uint8" else -128
    out_type = QuantizedType(parameters.storage, (1 / 256,), (zero_point,))
    return emit(ops.softmax(inputs[0], parameters.in_type, out_type))


def _concatenate(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
    types = [parameters.in_type, *[parameters.out_type] * (len(inputs) - 1)]
    return emit(ops.concatenate(inputs, types, parameters.out_type, len(parameters.shape) - 1))


def _unary(function: str) -> Operator:
    def build(emit: Emit, inputs: list[relax.Var], parameters: Parameters) -> relax.Var:
        return emit(ops.unary(function, inputs[0], parameters.in_type, parameters.out_type))

    return build


OPERATORS: dict[str, Operator] = {
    "conv2d": _convolution,
    "depthwise": _depthwise,
    "dense": _dense,
    "add": _binary(ops.add),
    "sub": _binary(ops.sub),
    "mul": _binary(ops.mul),
    "avg_pool2d": _pool(ops.avg_pool2d),
    "max_pool2d": _pool(ops.max_pool2d),
    "requantize": _requantize,
    "softmax": _softmax,
    "concatenate": _concatenate,
    **{function: _unary(function) for function, attrs in sorted(FUNCTIONS.items()) if not attrs},
}
