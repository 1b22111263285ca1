"""TFLite models of one quantized operator. Inputs are called `x` (or `a` and `b`), and the output is called `y`.

All of them load and run in LiteRT: see `test_tflite_models.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from service.core.models.arrays import Array
from tests.support.tflite_builder import ModelBuilder, Pair, Quant


def _activation(name: str) -> int:
    return int(getattr(schema.ActivationFunctionType, name))


def _padding(name: str) -> int:
    return int(getattr(schema.Padding, name))


def output_size(size: int, window: int, stride: int, dilation: int, padding: str) -> int:
    """Returns the number of elements along one spatial axis of the output (`ComputeOutSize` in
    lite/kernels/padding.h).
    """
    reach = (window - 1) * dilation + 1
    return -(-size // stride) if padding == "SAME" else -(-(size - reach + 1) // stride)


def _window_shape(shape: Sequence[int], window: Pair, strides: Pair, dilation: Pair, padding: str) -> Pair:
    height, width = (output_size(shape[1 + i], window[i], strides[i], dilation[i], padding) for i in range(2))
    return height, width


def _bias_type(bias: Array | None) -> int:
    """Returns the value of the option that makes LiteRT read a bias for 16-bit activations as it is stored."""
    is_narrow = bias is not None and bias.dtype == np.int32
    return int(schema.TensorType.INT32 if is_narrow else schema.TensorType.FLOAT32)


def conv2d_model(
    input_shape: Sequence[int],
    weights: Array,
    bias: Array,
    x_quant: Quant,
    weight_quant: Quant,
    y_quant: Quant,
    *,
    strides: Pair = (1, 1),
    padding: str = "SAME",
    dilation: Pair = (1, 1),
    activation: str = "NONE",
    dtype: npt.DTypeLike | None = None,
) -> bytes:
    """Returns a CONV_2D: input `[N, H, W, C]`, weights `[O, KH, KW, C]` of the input's dtype, per axis over 0.

    LiteRT does not run it without a bias. If C is only a divisor of the number of input channels, the convolution is
    grouped.
    """
    builder = ModelBuilder()
    spatial = _window_shape(input_shape, weights.shape[1:3], strides, dilation, padding)
    x, y = _ends(
        builder, input_shape, (input_shape[0], *spatial, weights.shape[0]), dtype or weights.dtype, x_quant, y_quant
    )
    options = schema.Conv2DOptionsT(
        padding=_padding(padding),
        strideH=strides[0],
        strideW=strides[1],
        fusedActivationFunction=_activation(activation),
        dilationHFactor=dilation[0],
        dilationWFactor=dilation[1],
        quantizedBiasType=_bias_type(bias),
    )
    parameters = _parameters(builder, weights, bias, x_quant, weight_quant)
    builder.operator("CONV_2D", [x, *parameters], [y], options)
    return builder.build([x], [y])


def depthwise_conv2d_model(
    input_shape: Sequence[int],
    weights: Array,
    bias: Array,
    x_quant: Quant,
    weight_quant: Quant,
    y_quant: Quant,
    *,
    strides: Pair = (1, 1),
    padding: str = "SAME",
    dilation: Pair = (1, 1),
    activation: str = "NONE",
    dtype: npt.DTypeLike | None = None,
) -> bytes:
    """Returns a DEPTHWISE_CONV_2D: weights `[1, KH, KW, C * M]`, per axis over 3. M is the depth multiplier.

    LiteRT crashes without the bias.
    """
    builder = ModelBuilder()
    spatial = _window_shape(input_shape, weights.shape[1:3], strides, dilation, padding)
    x, y = _ends(
        builder, input_shape, (input_shape[0], *spatial, weights.shape[3]), dtype or weights.dtype, x_quant, y_quant
    )
    options = schema.DepthwiseConv2DOptionsT(
        padding=_padding(padding),
        strideH=strides[0],
        strideW=strides[1],
        depthMultiplier=weights.shape[3] // input_shape[3],
        fusedActivationFunction=_activation(activation),
        dilationHFactor=dilation[0],
        dilationWFactor=dilation[1],
    )
    parameters = _parameters(builder, weights, bias, x_quant, weight_quant)
    builder.operator("DEPTHWISE_CONV_2D", [x, *parameters], [y], options)
    return builder.build([x], [y])


def transpose_conv_model(
    input_shape: Sequence[int],
    weights: Array,
    bias: Array | None,
    x_quant: Quant,
    weight_quant: Quant,
    y_quant: Quant,
    *,
    output_size: Pair,
    strides: Pair = (1, 1),
    padding: str = "SAME",
    activation: str = "NONE",
    dtype: npt.DTypeLike | None = None,
) -> bytes:
    """Returns a TRANSPOSE_CONV: input `[N, H, W, C]`, weights `[O, KH, KW, C]`, per axis over 0.

    `output_size` contains height and width.
    """
    builder = ModelBuilder()
    output_shape = (input_shape[0], *output_size, weights.shape[0])
    x, y = _ends(builder, input_shape, output_shape, dtype or weights.dtype, x_quant, y_quant)
    options = schema.TransposeConvOptionsT(
        padding=_padding(padding),
        strideH=strides[0],
        strideW=strides[1],
        fusedActivationFunction=_activation(activation),
        quantizedBiasType=_bias_type(bias),
    )
    shape = builder.constant("output_shape", np.asarray(output_shape, np.int32))
    filters, *rest = _parameters(builder, weights, bias, x_quant, weight_quant)
    builder.operator("TRANSPOSE_CONV", [shape, filters, x, *rest], [y], options, version=4)
    return builder.build([x], [y])


def fully_connected_model(
    input_shape: Sequence[int],
    weights: Array,
    bias: Array | None,
    x_quant: Quant,
    weight_quant: Quant,
    y_quant: Quant,
    *,
    activation: str = "NONE",
    keep_num_dims: bool = False,
    bias_type: int | None = None,
    dtype: npt.DTypeLike | None = None,
) -> bytes:
    """Returns a FULLY_CONNECTED: input `[..., K]` (flattened to `[-1, K]` unless `keep_num_dims`), weights `[O, K]`."""
    builder = ModelBuilder()
    units, depth = weights.shape
    rows = int(np.prod(input_shape)) // depth
    output_shape = (*input_shape[:-1], units) if keep_num_dims else (rows, units)
    x, y = _ends(builder, input_shape, output_shape, dtype or weights.dtype, x_quant, y_quant)
    options = schema.FullyConnectedOptionsT(
        fusedActivationFunction=_activation(activation),
        keepNumDims=keep_num_dims,
        quantizedBiasType=_bias_type(bias) if bias_type is None else bias_type,
    )
    parameters = _parameters(builder, weights, bias, x_quant, weight_quant)
    builder.operator("FULLY_CONNECTED", [x, *parameters], [y], options)
    return builder.build([x], [y])


def binary_model(
    name: str,
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    dtype: npt.DTypeLike,
    a_quant: Quant,
    b_quant: Quant,
    y_quant: Quant,
    *,
    activation: str = "NONE",
    b_data: Array | None = None,
) -> bytes:
    """Returns an ADD or MUL of `a` and `b`, which broadcast by NumPy's rules. If `b_data` is given, `b` is a constant
    instead of an input.
    """
    builder = ModelBuilder()
    a = builder.tensor("a", a_shape, dtype, a_quant)
    b = builder.tensor("b", b_shape, dtype, b_quant) if b_data is None else builder.constant("b", b_data, b_quant)
    y = builder.tensor("y", np.broadcast_shapes(tuple(a_shape), tuple(b_shape)), dtype, y_quant)
    kind = {"ADD": schema.AddOptionsT, "MUL": schema.MulOptionsT}[name]
    builder.operator(name, [a, b], [y], kind(fusedActivationFunction=_activation(activation)))
    return builder.build([a, b] if b_data is None else [a], [y])


def concatenation_model(
    shapes: Sequence[Sequence[int]],
    dtype: npt.DTypeLike,
    x_quants: Sequence[Quant],
    y_quant: Quant,
    *,
    axis: int = -1,
    activation: str = "NONE",
) -> bytes:
    """Returns a CONCATENATION of the inputs `x0`, `x1`, …. int8 inputs must have equal quantizations; those of uint8
    inputs may differ.
    """
    builder = ModelBuilder()
    inputs = [
        builder.tensor(f"x{i}", shape, dtype, quant)
        for i, (shape, quant) in enumerate(zip(shapes, x_quants, strict=True))
    ]
    output_shape = list(shapes[0])
    output_shape[axis] = sum(shape[axis] for shape in shapes)
    y = builder.tensor("y", output_shape, dtype, y_quant)
    options = schema.ConcatenationOptionsT(axis=axis, fusedActivationFunction=_activation(activation))
    builder.operator("CONCATENATION", inputs, [y], options)
    return builder.build(inputs, [y])


def pool2d_model(
    name: str,
    input_shape: Sequence[int],
    dtype: npt.DTypeLike,
    quant: Quant,
    *,
    window: Pair,
    strides: Pair = (1, 1),
    padding: str = "VALID",
    activation: str = "NONE",
    y_quant: Quant | None = None,
) -> bytes:
    """Returns an AVERAGE_POOL_2D or MAX_POOL_2D. The output has the input's quantization, which LiteRT requires."""
    builder = ModelBuilder()
    spatial = _window_shape(input_shape, window, strides, (1, 1), padding)
    x, y = _ends(builder, input_shape, (input_shape[0], *spatial, input_shape[3]), dtype, quant, y_quant or quant)
    options = schema.Pool2DOptionsT(
        padding=_padding(padding),
        strideH=strides[0],
        strideW=strides[1],
        filterHeight=window[0],
        filterWidth=window[1],
        fusedActivationFunction=_activation(activation),
    )
    builder.operator(name, [x], [y], options)
    return builder.build([x], [y])


def mean_model(
    input_shape: Sequence[int],
    dtype: npt.DTypeLike,
    x_quant: Quant,
    y_quant: Quant,
    *,
    axes: Sequence[int],
    keep_dims: bool = False,
) -> bytes:
    builder = ModelBuilder()
    reduced = {axis % len(input_shape) for axis in axes}
    output_shape = [
        1 if axis in reduced else size for axis, size in enumerate(input_shape) if keep_dims or axis not in reduced
    ]
    x, y = _ends(builder, input_shape, output_shape, dtype, x_quant, y_quant)
    axis_tensor = builder.constant("axes", np.asarray(axes, np.int32))
    builder.operator("MEAN", [x, axis_tensor], [y], schema.ReducerOptionsT(keepDims=keep_dims))
    return builder.build([x], [y])


def softmax_model(
    input_shape: Sequence[int], dtype: npt.DTypeLike, x_quant: Quant, *, beta: float = 1.0, y_quant: Quant | None = None
) -> bytes:
    """Returns a SOFTMAX over the last axis. The output has the scale 1/256 and the smallest zero point, which LiteRT
    requires.
    """
    builder = ModelBuilder()
    y_quant = y_quant or Quant(1 / 256, int(np.iinfo(np.dtype(dtype)).min))
    x, y = _ends(builder, input_shape, input_shape, dtype, x_quant, y_quant)
    builder.operator("SOFTMAX", [x], [y], schema.SoftmaxOptionsT(beta=beta))
    return builder.build([x], [y])


def quantize_model(
    input_shape: Sequence[int],
    x_dtype: npt.DTypeLike,
    x_quant: Quant | None,
    y_dtype: npt.DTypeLike,
    y_quant: Quant,
) -> bytes:
    """Returns a QUANTIZE. It converts from float32 if `x_quant` is None, and otherwise from one quantized type to
    another.
    """
    builder = ModelBuilder()
    x, y = builder.tensor("x", input_shape, x_dtype, x_quant), builder.tensor("y", input_shape, y_dtype, y_quant)
    builder.operator("QUANTIZE", [x], [y], schema.QuantizeOptionsT())
    return builder.build([x], [y])


def dequantize_model(input_shape: Sequence[int], dtype: npt.DTypeLike, x_quant: Quant) -> bytes:
    builder = ModelBuilder()
    x, y = builder.tensor("x", input_shape, dtype, x_quant), builder.tensor("y", input_shape, np.float32)
    builder.operator("DEQUANTIZE", [x], [y], schema.DequantizeOptionsT())
    return builder.build([x], [y])


def pad_model(input_shape: Sequence[int], dtype: npt.DTypeLike, quant: Quant, *, paddings: Sequence[Pair]) -> bytes:
    """Returns a PAD with the zero point. `paddings` contains (before, after) for each axis."""
    builder = ModelBuilder()
    output_shape = [size + before + after for size, (before, after) in zip(input_shape, paddings, strict=True)]
    x, y = _ends(builder, input_shape, output_shape, dtype, quant, quant)
    amounts = builder.constant("paddings", np.asarray(paddings, np.int32))
    builder.operator("PAD", [x, amounts], [y], schema.PadOptionsT())
    return builder.build([x], [y])


def reshape_model(input_shape: Sequence[int], new_shape: Sequence[int], dtype: npt.DTypeLike, quant: Quant) -> bytes:
    """Returns a RESHAPE. One element of `new_shape` may be -1."""
    builder = ModelBuilder()
    output_shape = np.empty(input_shape, np.bool_).reshape(new_shape).shape
    x, y = _ends(builder, input_shape, output_shape, dtype, quant, quant)
    shape = builder.constant("shape", np.asarray(new_shape, np.int32))
    builder.operator("RESHAPE", [x, shape], [y], schema.ReshapeOptionsT(newShape=np.asarray(new_shape, np.int32)))
    return builder.build([x], [y])


def squeeze_model(input_shape: Sequence[int], dtype: npt.DTypeLike, quant: Quant, *, axes: Sequence[int]) -> bytes:
    """Returns a SQUEEZE. Empty `axes` mean every axis of size 1."""
    builder = ModelBuilder()
    gone = {axis % len(input_shape) for axis in axes} or {i for i, size in enumerate(input_shape) if size == 1}
    x, y = _ends(builder, input_shape, [s for i, s in enumerate(input_shape) if i not in gone], dtype, quant, quant)
    builder.operator("SQUEEZE", [x], [y], schema.SqueezeOptionsT(squeezeDims=np.asarray(axes, np.int32)))
    return builder.build([x], [y])


def activation_model(
    name: str, input_shape: Sequence[int], dtype: npt.DTypeLike, x_quant: Quant, y_quant: Quant
) -> bytes:
    """Returns a RELU, RELU6 or RELU_N1_TO_1 as a separate operator."""
    builder = ModelBuilder()
    x, y = _ends(builder, input_shape, input_shape, dtype, x_quant, y_quant)
    builder.operator(name, [x], [y])
    return builder.build([x], [y])


def _ends(
    builder: ModelBuilder,
    input_shape: Sequence[int],
    output_shape: Sequence[int],
    dtype: npt.DTypeLike,
    x_quant: Quant,
    y_quant: Quant,
) -> Pair:
    return builder.tensor("x", input_shape, dtype, x_quant), builder.tensor("y", output_shape, dtype, y_quant)


def _parameters(
    builder: ModelBuilder, weights: Array, bias: Array | None, x_quant: Quant, weight_quant: Quant
) -> list[int]:
    """Adds the weights and, if there is one, the bias. The bias has the scale that LiteRT requires: input scale times
    weight scale.
    """
    parameters = [builder.constant("weights", weights, weight_quant)]
    if bias is not None:
        scales = x_quant.scale_array * weight_quant.scale_array
        parameters.append(builder.constant("bias", bias, Quant(scales.tolist())))
    return parameters
