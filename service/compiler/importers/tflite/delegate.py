"""Decides which nodes of a model LiteRT's default delegate (XNNPACK) computes, and which kernels compute the others.

The delegate computes some operators only under certain conditions. Nodes that do not meet these conditions are computed
by LiteRT's own optimized kernels, which round differently from the delegate. `TAKEN` lists the operators that the
delegate computes only under conditions, with the conditions of tflite/delegates/xnnpack/xnnpack_delegate.cc (VisitNode
and the functions that it calls); the conditions were compared with LiteRT 2.3.0, node by node. Operators that the
delegate never computes, or that only move or compare stored values, need no entry.

The delegate uses only the shapes and the constants that the file contains. A shape that operators compute from
constants counts as computed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from service.compiler.importers.tflite.geometry import SAME
from service.compiler.importers.tflite.model import Quantization, Tensor
from service.compiler.importers.tflite.node import Node, accumulators_of
from service.compiler.qnn.ops.builtin import CHANNELS, ELEMENTS, GEMM, OPTIMIZED, REFERENCE

_STORAGES = ("int8", "uint8")
_MAX_DIMENSIONS = 6  # XNN_MAX_TENSOR_DIMS
_LEAST_SCALE, _LARGEST_SCALE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Taken:
    """An operator that the delegate computes under some conditions.

    Attributes:
        takes: returns true if the delegate computes the node.
        kernel: for a node that the delegate does not compute, returns the kernel of `qnn.ops.builtin` that does.
            Returns None if the delegate and that kernel compute the same values.
    """

    takes: Callable[[Node], bool]
    kernel: Callable[[Node], str | None] = lambda node: REFERENCE


def builtin_kernel(node: Node) -> str | None:
    """Returns the LiteRT kernel that computes `node`. Returns None if the delegate computes it, or if both compute the
    same values.
    """
    rule = TAKEN.get(node.operator.name)
    if node.operator.name == "CONV_2D" and node.output.dtype == "int16" and accumulators_of(node) == "int32":
        return _convolution_kernel(node)
    if rule is None or not _is_quantized(node) or rule.takes(node):
        return None
    return rule.kernel(node)


def takes(node: Node) -> bool:
    """Returns true if the delegate computes `node`, which has 8-bit values."""
    rule = TAKEN.get(node.operator.name)
    return rule is not None and _is_quantized(node) and rule.takes(node)


def _is_quantized(node: Node) -> bool:
    """Returns true if the node has 8-bit values. The delegate does not compute 16-bit ones."""
    return node.is_quantized and node.output.dtype in _STORAGES


# -- conditions on tensors


def _in_file(node: Node, position: int) -> Tensor:
    """Returns the input as the file describes it."""
    node.input(position)  # raises an error if the input is omitted
    return node.model.tensors[node.operator.inputs[position]]


def _is_static(node: Node, position: int) -> bool:
    """CheckTensorStaticAllocation: the input is a constant. The delegate expands sparse constants (DENSIFY) before this
    check.
    """
    tensor = _in_file(node, position)
    return tensor.is_constant or _is_densified(node, tensor.index)


def _is_densified(node: Node, index: int) -> bool:
    return any(other.name == "DENSIFY" and index in other.outputs for other in node.model.operators)


def _has_rank(node: Node, position: int, rank: int) -> bool:
    """CheckTensorShape: the tensor has `rank` dimensions, none of them empty."""
    shape = _in_file(node, position).shape
    return len(shape) == rank and all(extent > 0 for extent in shape)


def _has_valid_scales(quantization: Quantization) -> bool:
    """xnn_validate_quantized_tensor: scales are positive and normal numbers."""
    return all(_LEAST_SCALE <= np.float32(scale) <= _LARGEST_SCALE for scale in quantization.scales)


def _is_per_tensor(tensor: Tensor) -> bool:
    """CheckTensorFloat32OrQUInt8Type: the tensor has one scale, and its quantized dimension is 0."""
    quantization = tensor.quantization
    return quantization is not None and not quantization.per_axis and quantization.axis == 0


def _are_per_tensor(node: Node, *positions: int) -> bool:
    """Returns true if the inputs and the output have one scale each."""
    tensors = [_in_file(node, position) for position in positions]
    return all(_is_per_tensor(tensor) for tensor in (*tensors, node.output))


def _is_small(node: Node, *positions: int) -> bool:
    """CheckTensorShape: the inputs have at most as many dimensions as XNNPACK supports."""
    return all(len(_in_file(node, position).shape) <= _MAX_DIMENSIONS for position in positions)


def _has_static_integers(node: Node, position: int) -> bool:
    tensor = _in_file(node, position)
    return tensor.dtype == "int32" and tensor.is_constant


def _has_taken_bias(node: Node, position: int, *, optional: bool) -> bool:
    """CheckTensorFloat32OrFloat16OrQCInt32Type: the bias is an int32 constant with the quantization of accumulators."""
    if not node.has_input(position):
        return optional
    bias = _in_file(node, position)
    quantization = bias.quantization
    return (
        _is_static(node, position)
        and quantization is not None
        and quantization.axis == 0
        and not any(quantization.zero_points)
        and _has_valid_scales(quantization)
    )


def _has_taken_weights(node: Node, position: int, axis: int, rank: int) -> bool:
    """CheckTensorFloat32OrQCInt8Type: the weights are a constant, quantized per tensor, or per channel along `axis`."""
    quantization = _in_file(node, position).quantization
    return (
        _is_static(node, position)
        and _has_rank(node, position, rank)
        and quantization is not None
        and (not quantization.per_axis or quantization.axis == axis)
        and _has_valid_scales(quantization)
    )


def _ratio(node: Node, position: int) -> np.float32:
    """Returns the input's scale divided by the output's scale, in float32."""
    return np.float32(np.float32(node.in_type(position).scale) / np.float32(node.out_type().scale))


# -- operators


def _convolution(channel_axis: int) -> Callable[[Node], bool]:
    """VisitConv2DNode and VisitDepthwiseConv2DNode."""

    def takes_convolution(node: Node) -> bool:
        return (
            _are_per_tensor(node, 0)
            and _has_rank(node, 0, 4)
            and _has_taken_weights(node, 1, channel_axis, 4)
            and _has_taken_bias(node, 2, optional=False)
        )

    return takes_convolution


def _convolution_kernel(node: Node) -> str:
    """Corresponds to `Prepare` in tflite/kernels/conv.cc: LiteRT has no optimized kernel for grouped convolutions."""
    return GEMM if node.input(0).shape[3] == node.input(1).shape[3] else REFERENCE


def _depthwise_kernel(node: Node) -> str:
    return CHANNELS if node.output.dtype == "int8" else REFERENCE


def _transposed_convolution(node: Node) -> bool:
    """VisitTransposeConvNode and CalculateTransposeConvPaddings."""
    shape, weights, source, bias = range(4)
    if not (
        _has_static_integers(node, shape)
        and _has_taken_weights(node, weights, 0, 4)
        and _are_per_tensor(node, source)
        and _has_rank(node, source, 4)
        and _has_taken_bias(node, bias, optional=True)
    ):
        return False
    kernel = node.input(weights).shape[1:3]
    if node.int_option("padding") == SAME:
        strides = (node.int_option("stride_h"), node.int_option("stride_w"))
        return all(extent >= stride for extent, stride in zip(kernel, strides, strict=True))
    target = node.integers(shape).reshape(-1)[1:3].tolist()
    return all(extent <= size for extent, size in zip(kernel, target, strict=True))


def _transposed_kernel(node: Node) -> str:
    return CHANNELS if node.output.dtype == "int8" else ELEMENTS


def _fully_connected(node: Node) -> bool:
    """VisitFullyConnectedNode: int8 weights are symmetric."""
    quantization = _in_file(node, 1).quantization
    if node.output.dtype == "int8" and (quantization is None or any(quantization.zero_points)):
        return False
    return _are_per_tensor(node, 0) and _has_taken_weights(node, 1, 0, 2) and _has_taken_bias(node, 2, optional=True)


def _batch_matmul(node: Node) -> bool:
    """VisitBatchMatMulNode, and create_batch_matrix_multiply_operator of XNNPACK: the second operand is symmetric."""
    return _are_per_tensor(node, 0, 1) and _in_file(node, 1).quantization.zero_points == (0,)  # type: ignore[union-attr]


def _sum(node: Node) -> bool:
    """VisitBinaryNode: the operands' scales are 1/1024 to 256 times the output's scale."""
    ratios = [_ratio(node, position) for position in range(2)]
    return _are_per_tensor(node, 0, 1) and _is_small(node, 0, 1) and all(2**-10 <= ratio < 2**8 for ratio in ratios)


def _product(node: Node) -> bool:
    """VisitBinaryNode: the product of the scales is 1/65536 to 256 times the output's scale."""
    lhs, rhs = (np.float32(node.in_type(position).scale) for position in range(2))
    ratio = np.float32(np.float32(lhs * rhs) / np.float32(node.out_type().scale))
    return _are_per_tensor(node, 0, 1) and _is_small(node, 0, 1) and bool(2**-16 <= ratio < 2**8)


def _leaky_relu(node: Node) -> bool:
    """VisitUnaryNode: slopes from 1/256 to 128, or to almost -128 below zero."""
    alpha = np.float32(node.option("alpha"))  # type: ignore[arg-type]
    above = _ratio(node, 0)
    below = np.float32(above * alpha)
    return (
        _unary(node)
        and bool(abs(alpha) >= _LEAST_SCALE)
        and bool(2**-8 <= above <= 2**7 and -127.99609375 <= below <= 2**7 and abs(below) >= 2**-8)
    )


def _unary(node: Node) -> bool:
    return _are_per_tensor(node, 0) and _is_small(node, 0)


def _quantize(node: Node) -> bool:
    """VisitUnaryNode: float32, or the same storage type with a scale that is 1/256 to 128 times the output's scale."""
    if node.input(0).dtype == "float32":
        return True
    return _unary(node) and node.input(0).dtype == node.output.dtype and bool(2**-8 <= _ratio(node, 0) <= 2**7)


def _max_pool(node: Node) -> bool:
    """VisitMaxPool2DNode and CheckPoolingParams: windows are adjacent or overlap, or each is a single element."""
    window = (node.int_option("filter_height"), node.int_option("filter_width"))
    strides = (node.int_option("stride_h"), node.int_option("stride_w"))
    return _are_per_tensor(node, 0) and all(stride <= extent for stride, extent in zip(strides, window, strict=True))


def _mean(node: Node) -> bool:
    """VisitReduceNode."""
    return _are_per_tensor(node, 0) and _has_static_integers(node, 1) and len(_in_file(node, 1).shape) <= 1


def _resize_bilinear(node: Node) -> bool:
    """VisitResizeBilinearNode."""
    return _are_per_tensor(node, 0) and _has_rank(node, 0, 4) and _has_static_integers(node, 1)


TAKEN: Mapping[str, Taken] = {
    "ADD": Taken(_sum),
    "BATCH_MATMUL": Taken(_batch_matmul),
    "CONV_2D": Taken(_convolution(0), _convolution_kernel),
    "DEPTHWISE_CONV_2D": Taken(_convolution(3), _depthwise_kernel),
    "ELU": Taken(_unary),
    "FULLY_CONNECTED": Taken(_fully_connected, lambda node: GEMM),
    "LEAKY_RELU": Taken(_leaky_relu),
    "LOGISTIC": Taken(_unary),
    "MAX_POOL_2D": Taken(_max_pool, lambda node: None),
    "MEAN": Taken(_mean, lambda node: OPTIMIZED),
    "MUL": Taken(_product),
    "QUANTIZE": Taken(_quantize, lambda node: ELEMENTS if node.input(0).dtype in _STORAGES else REFERENCE),
    "RESIZE_BILINEAR": Taken(_resize_bilinear, lambda node: REFERENCE if node.output.dtype == "int8" else OPTIMIZED),
    "SUB": Taken(_sum),
    "TANH": Taken(_unary),
    "TRANSPOSE_CONV": Taken(_transposed_convolution, _transposed_kernel),
}
