"""`float_networks.residual_network` as a TFLite model. It has the same weights, pictures `[N, H, W, C]`, and fused
activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from service.quantize.file.document import Document, Node
from service.quantize.rewrites.folding import tidy
from tests.support.float_networks import CLASSES, SIZE, residual_network
from tests.support.tflite_builder import ModelBuilder

_RELU, _RELU6 = 1, 3


def tflite_residual_network() -> bytes:
    """Returns the network: `image` `[1, 16, 16, 3]` -> `scores` `[1, 10]`."""
    document = Document(residual_network())
    tidy(document)
    return _Writer(document).build()


class _Writer:
    def __init__(self, document: Document) -> None:
        self._document, self._builder = document, ModelBuilder()
        self._shapes: dict[str, tuple[int, ...]] = {"image": (1, SIZE, SIZE, 3)}
        self._places = {"image": self._builder.tensor("image", self._shapes["image"], np.float32)}

    def build(self) -> bytes:
        readers = self._document.readers()
        fused: set[str] = set()
        for node in self._document.nodes:
            if node.outputs[0] in fused:
                continue
            behind = readers.get(node.outputs[0], [])
            activation = behind[0] if len(behind) == 1 and behind[0].op_type in ("Relu", "Clip") else None
            result = (activation or node).outputs[0]
            fused |= {result} if activation else set()
            code = 0 if activation is None else _RELU if activation.op_type == "Relu" else _RELU6
            getattr(self, f"_{node.op_type.lower()}")(node, result, code)
        return self._builder.build([self._places["image"]], [self._places["scores"]])

    def _put(
        self, name: str, operands: list[int], result: str, shape: tuple[int, ...], options: Any, version: int = 1
    ) -> None:
        self._shapes[result], self._places[result] = shape, self._builder.tensor(result, shape, np.float32)
        self._builder.operator(name, operands, [self._places[result]], options, version)

    def _constant(self, name: str, values: np.ndarray[Any, Any]) -> int:
        return self._builder.constant(name, np.ascontiguousarray(values))

    def _conv(self, node: Node, result: str, activation: int) -> None:
        """Writes a convolution after an explicit PAD, because TFLite's padding may be on other sides than ONNX's."""
        x, (weights, *bias) = node.inputs[0], [self._document.constants[name] for name in node.inputs[1:3]]
        stride, (filters, per_group, kernel, _) = node.attributes.get("strides", (1, 1)), weights.shape
        assert isinstance(stride, tuple)
        around, (_, size, _, channels) = kernel // 2, self._shapes[x]
        position = self._places[x]
        if around:
            widths = self._constant(
                f"{result}_widths", np.array([(0, 0), (around,) * 2, (around,) * 2, (0, 0)], np.int32)
            )
            padded = (1, size + 2 * around, size + 2 * around, channels)
            self._put("PAD", [position, widths], f"{result}_padded", padded, schema.PadOptionsT())
            position = self._places[f"{result}_padded"]
        kind: Any = schema.Conv2DOptionsT
        if per_group == 1 and filters == channels:
            kind = schema.DepthwiseConv2DOptionsT
        options = kind(strideH=stride[0], strideW=stride[1], padding=1, fusedActivationFunction=activation)
        options.dilationHFactor = options.dilationWFactor = 1
        is_depthwise = kind is schema.DepthwiseConv2DOptionsT
        order = (1, 2, 3, 0) if is_depthwise else (0, 2, 3, 1)
        operands = [position, self._constant(f"{result}_weights", weights.transpose(order))]
        operands += [self._constant(f"{result}_bias", each) for each in bias]
        extent = (size + 2 * around - kernel) // stride[0] + 1
        name = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
        self._put(name, operands, result, (1, extent, extent, filters), options)

    def _add(self, node: Node, result: str, activation: int) -> None:
        shape, options = self._shapes[node.inputs[0]], schema.AddOptionsT(fusedActivationFunction=activation)
        self._put("ADD", [self._places[name] for name in node.inputs], result, shape, options)

    def _maxpool(self, node: Node, result: str, activation: int) -> None:
        _, height, width, channels = self._shapes[node.inputs[0]]
        options = schema.Pool2DOptionsT(strideH=2, strideW=2, filterHeight=2, filterWidth=2, padding=1)
        shape = (1, height // 2, width // 2, channels)
        self._put("MAX_POOL_2D", [self._places[node.inputs[0]]], result, shape, options)

    def _globalaveragepool(self, node: Node, result: str, activation: int) -> None:
        """Writes a MEAN that drops the axes of rows and columns, so that the Flatten after it needs no operator."""
        axes, channels = self._constant("axes", np.array([1, 2], np.int32)), self._shapes[node.inputs[0]][3]
        operands = [self._places[node.inputs[0]], axes]
        self._put("MEAN", operands, result, (1, channels), schema.ReducerOptionsT(keepDims=False))

    def _flatten(self, node: Node, result: str, activation: int) -> None:
        self._places[result] = self._places[node.inputs[0]]

    def _gemm(self, node: Node, result: str, activation: int) -> None:
        weights, bias = (self._document.constants[name] for name in node.inputs[1:3])
        operands = [self._places[node.inputs[0]], self._constant("head", weights), self._constant("head_bias", bias)]
        self._put("FULLY_CONNECTED", operands, result, (1, CLASSES), schema.FullyConnectedOptionsT())

    def _softmax(self, node: Node, result: str, activation: int) -> None:
        self._put("SOFTMAX", [self._places[node.inputs[0]]], result, (1, CLASSES), schema.SoftmaxOptionsT(beta=1.0))
