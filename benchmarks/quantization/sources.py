"""Float networks with real weights as TFLite files: hosted quantized ones, dequantized, and digits; and photographs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from benchmarks.harness.home import SHARED
from benchmarks.models.photographs import photographs
from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.model import Model, Operator, Tensor
from tests.support.tflite_builder import ModelBuilder

SIZE, DIGIT = 224, 16
Array = np.ndarray[Any, np.dtype[Any]]
_RELU6 = schema.ActivationFunctionType.RELU6


class _Network:
    """A float TFLite file that is written operator by operator; tensors are identified by their indices, pictures are
    `[N, H, W, C]`.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._made = ModelBuilder()
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.image = self._tensor("image", shape)

    def conv(self, x: int, weights: Array, bias: Array, stride: int = 1, padding: int = 0, activation: int = 0) -> int:
        """Adds a convolution with `weights` `[O, KH, KW, I]`; padding 0 is TFLite's SAME, 1 its VALID."""
        options = schema.Conv2DOptionsT(
            padding=padding, strideW=stride, strideH=stride, fusedActivationFunction=activation
        )
        shape = self._behind(x, weights.shape[1:3], stride, padding, weights.shape[0])
        return self._put("CONV_2D", [x, self._constant(weights), self._constant(bias)], shape, options)

    def depthwise(
        self, x: int, weights: Array, bias: Array, stride: int = 1, padding: int = 0, activation: int = 0
    ) -> int:
        """Adds a depthwise convolution with `weights` `[1, KH, KW, C]`."""
        options = schema.DepthwiseConv2DOptionsT(
            padding=padding, strideW=stride, strideH=stride, depthMultiplier=1, fusedActivationFunction=activation
        )
        shape = self._behind(x, weights.shape[1:3], stride, padding, weights.shape[3])
        return self._put("DEPTHWISE_CONV_2D", [x, self._constant(weights), self._constant(bias)], shape, options)

    def dense(self, x: int, weights: Array, bias: Array) -> int:
        """Adds a dense layer with `weights` `[O, I]`."""
        operands = [x, self._constant(weights), self._constant(bias)]
        return self._put("FULLY_CONNECTED", operands, (1, len(weights)), schema.FullyConnectedOptionsT())

    def add(self, x: int, y: int, activation: int = 0) -> int:
        return self._put("ADD", [x, y], self.shapes[x], schema.AddOptionsT(fusedActivationFunction=activation))

    def mean(self, x: int) -> int:
        """Adds a mean over height and width, which remain with size 1."""
        shape = (1, 1, 1, self.shapes[x][3])
        return self._put("MEAN", [x, self._constant(np.array([1, 2], np.int32))], shape, schema.ReducerOptionsT(True))

    def flatten(self, x: int, name: str = "") -> int:
        shape = (1, int(np.prod(self.shapes[x])))
        operands = [x, self._constant(np.array(shape, np.int32))]
        return self._put("RESHAPE", operands, shape, schema.ReshapeOptionsT(list(shape)), name)

    def to_bytes(self, output: int) -> bytes:
        self._made.signature({"image": self.image}, {"logits": output})
        return self._made.build([self.image], [output])

    def _behind(self, x: int, kernel: tuple[int, ...], stride: int, padding: int, channels: int) -> tuple[int, ...]:
        sides = zip(self.shapes[x][1:3], kernel, strict=True)
        return 1, *(-(-(side - (size - 1) * padding) // stride) for side, size in sides), channels

    def _put(self, name: str, operands: list[int], shape: tuple[int, ...], options: Any, result: str = "") -> int:
        position = self._tensor(result or f"{name.lower()}_{len(self.shapes)}", shape)
        self._made.operator(name, operands, [position], options)
        return position

    def _tensor(self, name: str, shape: tuple[int, ...]) -> int:
        position = self._made.tensor(name, shape, np.float32)
        self.shapes[position] = shape
        return position

    def _constant(self, values: Array) -> int:
        return self._made.constant(f"constant_{len(self._made.model.buffers)}", np.ascontiguousarray(values))


def with_real_weights(file: bytes) -> bytes:
    """Returns the image classifier of a quantized TFLite file in float32: `image` `[1, H, W, C]` to `logits` `[1, N]`,
    of convolutions, dense layers, additions and means. Weights and biases are those of the file times their scales;
    activations are neither rounded nor bounded, except by their activation functions.
    """
    model = read_model(file)
    made = _Network(tuple(model.tensors[model.inputs[0]].shape))
    positions = {model.inputs[0]: made.image}
    for operator in model.operators:
        first, output = positions[operator.inputs[0]], operator.outputs[0]
        match operator.name:
            case "QUANTIZE" | "RESHAPE" | "SOFTMAX":
                positions[output] = first
            case "ADD":
                activation = int(str((operator.options or {})["fused_activation_function"]))
                positions[output] = made.add(first, positions[operator.inputs[1]], activation)
            case "FULLY_CONNECTED":
                weights, bias = (_real(model.tensors[position]) for position in operator.inputs[1:3])
                positions[output] = made.dense(made.flatten(first), weights, bias)
            case "AVERAGE_POOL_2D" | "MEAN":
                positions[output] = made.mean(first)
            case "CONV_2D" | "DEPTHWISE_CONV_2D":
                positions[output] = _convolution(made, model, operator, first)
            case other:
                raise ValueError(f"no float form for {other}")
    return made.to_bytes(made.flatten(positions[model.outputs[0]], "logits"))


def _convolution(made: _Network, model: Model, operator: Operator, x: int) -> int:
    weights, bias = (_real(model.tensors[position]) for position in operator.inputs[1:3])
    options = operator.options or {}
    settings = [int(str(options[name])) for name in ("stride_h", "padding", "fused_activation_function")]
    return (made.conv if operator.name == "CONV_2D" else made.depthwise)(x, weights, bias, *settings)


def _real(tensor: Tensor) -> Array:
    assert tensor.data is not None
    assert tensor.quantization is not None
    kind, shape = tensor.quantization, [1] * len(tensor.shape)
    shape[kind.axis if kind.per_axis else 0] = -1
    scales, points = np.array(kind.scales).reshape(shape), np.array(kind.zero_points).reshape(shape)
    return np.asarray((tensor.data.astype(np.float64) - points) * scales, np.float32)


def digits(weights: Mapping[str, Array]) -> bytes:
    """Returns the network of `digits.py` with its weights: pixels `[1, 16, 16, 1]`, -1 to 1, to logits `[1, 10]`."""

    def parts(name: str) -> tuple[Array, Array]:
        kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        if kernel.ndim == 4:  # in PyTorch's order: [O, I, KH, KW], with one input for a depthwise convolution
            kernel = kernel.transpose((1, 2, 3, 0) if name in ("reduce", "depthwise") else (0, 2, 3, 1))
        return kernel, bias

    made = _Network((1, DIGIT, DIGIT, 1))
    x = made.conv(made.image, *parts("stem"), activation=_RELU6)
    x = made.depthwise(x, *parts("reduce"), stride=2, activation=_RELU6)
    trunk = made.conv(x, *parts("project"))
    x = made.conv(trunk, *parts("expand"), activation=_RELU6)
    x = made.depthwise(x, *parts("depthwise"), activation=_RELU6)
    x = made.add(trunk, made.conv(x, *parts("shrink")))
    return made.to_bytes(made.dense(made.flatten(made.mean(x)), *parts("classify")))


def labelled() -> tuple[Array, Array]:
    """Returns the 100 photographs, `[100, 224, 224, 3]` from -1 to 1, and the class of each among 1001."""
    expected = np.load(SHARED / "expected" / "mobilenet_v2_1.0_224_quant.npz")
    files = sorted((SHARED / "images").glob("*.JPEG"))
    classes = dict(zip(map(str, expected["image"]), expected["label_index"].tolist(), strict=True))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    order = np.random.default_rng(0).choice(len(files), len(files), replace=False)  # the order of `photographs`
    pixels = (photographs(SHARED / "images", len(files), SIZE) * std + mean) * 2 - 1
    return np.asarray(pixels, np.float32), np.array([classes[files[index].name] for index in order])
