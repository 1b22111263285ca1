"""The operators that can be converted, by MXNet's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.compiler.importers.mxnet.node import Node, Value
from service.compiler.importers.mxnet.operators import layers, quantized, real

# Emits the calls for a node and returns the node's outputs.
Rule = Callable[[Node], list[Value]]

RULES: Mapping[str, Rule] = {
    "Activation": real.activation,
    "Dropout": real.identity,
    "Flatten": real.flatten,
    "Pooling": real.pooling,
    "SoftmaxActivation": real.softmax_activation,
    "SoftmaxOutput": real.softmax_output,
    "_Plus": real.add,
    "_contrib_dequantize": quantized.dequantize,
    "_contrib_quantize_v2": quantized.quantize,
    "_contrib_quantized_act": quantized.activation,
    "_contrib_quantized_concat": quantized.concat,
    "_contrib_quantized_conv": layers.quantized_convolution,
    "_contrib_quantized_elemwise_add": quantized.add,
    "_contrib_quantized_flatten": quantized.flatten,
    "_contrib_quantized_fully_connected": layers.quantized_fully_connected,
    "_contrib_quantized_pooling": quantized.pooling,
    "_contrib_requantize": quantized.requantize,
    "_copy": real.identity,
    "_plus": real.add,
    "_sg_mkldnn_conv": layers.subgraph_convolution,
    "_sg_mkldnn_fully_connected": layers.subgraph_fully_connected,
    "clip": real.clip,
    "elemwise_add": real.add,
    "flatten": real.flatten,
    "relu": real.function("relu"),
    "sigmoid": real.function("sigmoid"),
    "softmax": real.softmax,
    "tanh": real.function("tanh"),
}
