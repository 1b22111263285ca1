"""The operators that can be converted, by MXNet's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.compiler.importers.mxnet.node import Node, Value
from service.compiler.importers.mxnet.operators import elementwise, images, layers, movement, quantized, real
from service.compiler.importers.mxnet.operators.elementwise import compared, function, of_numbers, of_tensors

# Emits the calls for a node and returns the node's outputs.
Rule = Callable[[Node], list[Value]]

_ARITHMETIC = {
    "plus": "Add",
    "minus": "Sub",
    "mul": "Mul",
    "div": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
}
_COMPARISONS = {
    "equal": ("Equal", False),
    "not_equal": ("Equal", True),
    "greater": ("Greater", False),
    "greater_equal": ("GreaterOrEqual", False),
    "lesser": ("Less", False),
    "lesser_equal": ("LessOrEqual", False),
}

_FLOAT: Mapping[str, Rule] = {
    **{name: function(name) for name in elementwise.FUNCTIONS if name not in ("clip", "div_sqrt_dim")},
    **{f"_{name}_scalar": of_numbers(op_type) for name, op_type in _ARITHMETIC.items()},
    **{f"_r{name}_scalar": of_numbers(_ARITHMETIC[name], swapped=True) for name in ("minus", "div", "power")},
    **{f"broadcast_{name}": of_tensors(op_type) for name, op_type in _ARITHMETIC.items()},
    **{f"_{name}": of_tensors(op_type) for name, op_type in _ARITHMETIC.items() if name != "plus"},
    **{f"elemwise_{name}": of_tensors(op_type) for name, op_type in (("sub", "Sub"), ("mul", "Mul"), ("div", "Div"))},
    **{f"broadcast_{name}": of_tensors(op_type) for name, op_type in (("add", "Add"), ("sub", "Sub"))},
    **{
        f"_{name}_scalar": compared(op_type, number=True, negated=negated)
        for name, (op_type, negated) in _COMPARISONS.items()
    },
    **{
        f"{prefix}{name}": compared(op_type, number=False, negated=negated)
        for name, (op_type, negated) in _COMPARISONS.items()
        for prefix in ("_", "broadcast_")
    },
    **{name: images.reduction(name) for name in ("mean", "sum", "max", "min")},
    **{name: images.extreme_place(name) for name in ("argmax", "argmin")},
    "Activation": lambda node: node.outputs_of(elementwise.activation(node, node.real(0), node.attributes)),
    "BatchNorm": images.batch_norm,
    "BlockGrad": real.identity,
    "Concat": movement.concat,
    "Convolution": images.convolution,
    "Deconvolution": images.deconvolution,
    "Dropout": real.identity,
    "Embedding": images.embedding,
    "Flatten": real.flatten,
    "FullyConnected": images.fully_connected,
    "GroupNorm": images.group_norm,
    "InstanceNorm": images.instance_norm,
    "L2Normalization": images.l2_normalization,
    "LRN": images.response_norm,
    "LayerNorm": images.layer_norm,
    "LeakyReLU": elementwise.leaky_relu,
    "Pad": movement.pad,
    "Pooling": real.pooling,
    "Reshape": movement.reshape,
    "SliceChannel": movement.split,
    "SoftmaxActivation": real.softmax_activation,
    "SoftmaxOutput": real.softmax_output,
    "SwapAxis": movement.swap_axes,
    "UpSampling": images.upsampled,
    "_Plus": real.add,
    "_contrib_AdaptiveAvgPooling2D": images.adaptive_average,
    "_contrib_BilinearResize2D": images.resized,
    "_contrib_div_sqrt_dim": function("div_sqrt_dim"),
    "_copy": real.identity,
    "_ones": movement.filled(1.0),
    "_plus": real.add,
    "_zeros": movement.filled(0.0),
    "add_n": elementwise.total,
    "batch_dot": images.product,
    "broadcast_axis": movement.broadcast_axis,
    "broadcast_like": movement.broadcast_like,
    "broadcast_to": movement.broadcast_to,
    "clip": function("clip"),
    "depth_to_space": movement.depth_to_space,
    "dot": images.product,
    "elemwise_add": real.add,
    "expand_dims": movement.expand_dims,
    "flatten": real.flatten,
    "log_softmax": real.softmax("LogSoftmax"),
    "ones_like": movement.filled(1.0, like=True),
    "repeat": movement.repeat,
    "slice": movement.slice_,
    "slice_axis": movement.slice_axis,
    "slice_like": movement.slice_like,
    "softmax": real.softmax(),
    "softmin": real.softmax(negated=True),
    "space_to_depth": movement.space_to_depth,
    "squeeze": movement.squeeze,
    "stack": movement.stack,
    "tile": movement.tile,
    "transpose": movement.transpose,
    "zeros_like": movement.filled(0.0, like=True),
}

RULES: Mapping[str, Rule] = {
    **_FLOAT,
    "_contrib_dequantize": quantized.dequantize,
    "_contrib_quantize_v2": quantized.quantize,
    "_contrib_quantized_act": quantized.activation,
    "_contrib_quantized_batch_norm": quantized.batch_norm,
    "_contrib_quantized_concat": quantized.concat,
    "_contrib_quantized_conv": layers.quantized_convolution,
    "_contrib_quantized_elemwise_add": quantized.add,
    "_contrib_quantized_elemwise_mul": quantized.multiply,
    "_contrib_quantized_embedding": quantized.embedding,
    "_contrib_quantized_flatten": quantized.flatten,
    "_contrib_quantized_fully_connected": layers.quantized_fully_connected,
    "_contrib_quantized_pooling": quantized.pooling,
    "_contrib_requantize": quantized.requantize,
    "_sg_mkldnn_conv": layers.subgraph_convolution,
    "_sg_mkldnn_fully_connected": layers.subgraph_fully_connected,
}
