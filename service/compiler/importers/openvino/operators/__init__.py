"""The layers that can be converted, by their types in an IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.compiler.importers.openvino.node import Node
from service.compiler.importers.openvino.operators import elementwise, images, layers, movement, quantizing
from service.compiler.importers.openvino.values import Value

# Emits the calls for a layer and returns the layer's outputs.
Rule = Callable[[Node], list[Value]]

RULES: Mapping[str, Rule] = {
    **elementwise.ELEMENTWISE,
    **images.IMAGES,
    **movement.MOVEMENT,
    "Convert": quantizing.convert,
    "ConvertLike": quantizing.convert_like,
    "Convolution": layers.convolution,
    "ConvolutionBackpropData": layers.deconvolution,
    "FakeQuantize": quantizing.fake_quantize,
    "GroupConvolution": layers.group_convolution,
    "GroupConvolutionBackpropData": layers.group_deconvolution,
    "MatMul": layers.matmul,
    "Multiply": quantizing.multiply,
    "Subtract": quantizing.subtract,
}
