"""The operators that can be converted, by MXNet's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.compiler.importers.mxnet.node import Node, Value
from service.compiler.importers.mxnet.operators import (
    conversion,
    convolution,
    elementwise,
    fully_connected,
    movement,
    pooling,
    real,
)

# Emits the calls for a node and returns the node's outputs.
Rule = Callable[[Node], list[Value]]

RULES: Mapping[str, Rule] = {
    "Dropout": movement.identity,
    "Flatten": movement.flatten,
    "Pooling": pooling.pooling,
    "_contrib_dequantize": conversion.dequantize,
    "_contrib_quantize_v2": conversion.quantize_v2,
    "_contrib_quantized_act": elementwise.quantized_activation,
    "_contrib_quantized_concat": elementwise.quantized_concat,
    "_contrib_quantized_conv": convolution.quantized_convolution,
    "_contrib_quantized_elemwise_add": elementwise.quantized_add,
    "_contrib_quantized_flatten": movement.quantized_flatten,
    "_contrib_quantized_fully_connected": fully_connected.quantized_fully_connected,
    "_contrib_quantized_pooling": pooling.quantized_pooling,
    "_contrib_requantize": conversion.requantize,
    "_copy": movement.identity,
    "_sg_mkldnn_conv": convolution.subgraph_convolution,
    "_sg_mkldnn_fully_connected": fully_connected.subgraph_fully_connected,
    "flatten": movement.flatten,
    **real.RULES,
}
