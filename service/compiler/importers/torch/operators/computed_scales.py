"""Quantizations whose scales and zero points are computed when the model runs: PyTorch's `quantized_decomposed`
(torch/ao/quantization/fx/_decomposed.py), and torchao's operators of blocks (torchao/quantization/quant_primitives.py).

In an exported program, these operators are followed by layers of real values, which PyTorch computes in float32. All
steps are rounded in the types in which PyTorch computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.real import operand
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import STORAGE_RANGES

_EPSILON = float(np.finfo(np.float32).eps)
_LEAST_SCALE_OF_TOKEN = 1e-5
_STORED = ("int8", "uint8", "int16", "int32")
Parameters = tuple[relax.Expr, relax.Expr]  # scale, zero point


class _Steps:
    """Arithmetic of one operator in one type."""

    def __init__(self, node: Node, dtype: str) -> None:
        self._node, self.dtype = node, dtype

    def of(self, x: relax.Expr) -> relax.Expr:
        """Returns `x` in the type of the steps."""
        return x if str(x.ty.dtype) == self.dtype else self._node.emit(relax.op.astype(x, self.dtype), "cast")

    def __call__(self, make: Callable[..., relax.Call], *operands: relax.Expr | float) -> relax.Expr:
        values = (
            relax.const(np.array(x, self.dtype), self.dtype) if isinstance(x, int | float) else x for x in operands
        )
        return self._node.emit(make(*values), "step")

    def between(self, x: relax.Expr, low: float, high: float) -> relax.Expr:
        return self(relax.op.minimum, self(relax.op.maximum, x, low), high)


def _extremes(node: Node, x: relax.Expr, axes: Sequence[int]) -> tuple[relax.Expr, relax.Expr]:
    """Returns the smallest value or 0, and the largest value or 0, along axes that stay with length 1."""
    steps = _Steps(node, "float32")
    low, high = (node.emit(of(x, axis=list(axes), keepdims=True), "extreme") for of in (relax.op.min, relax.op.max))
    return steps(relax.op.minimum, low, 0.0), steps(relax.op.maximum, high, 0.0)


def _asymmetric(node: Node, ends: tuple[relax.Expr, relax.Expr], bounds: tuple[int, int], epsilon: float) -> Parameters:
    """Returns scale and zero point, float32."""
    (low, high), (least, most), steps = ends, bounds, _Steps(node, "float32")
    node.require(most > least, f"has the bounds {least} and {most}")
    scale = steps(relax.op.divide, steps(relax.op.subtract, high, low), float(most - least))
    scale = steps(relax.op.maximum, scale, epsilon)
    moved = steps(relax.op.round, steps(relax.op.divide, low, scale))
    return scale, steps.between(steps(relax.op.subtract, float(least), moved), least, most)


def _symmetric(
    node: Node, ends: tuple[relax.Expr, relax.Expr], bounds: tuple[int, int], epsilon: float, point: int
) -> Parameters:
    """Returns scale and zero point, float32."""
    (low, high), steps = ends, _Steps(node, "float32")
    reach = steps(relax.op.maximum, steps(relax.op.negative, low), high)
    scale = steps(relax.op.maximum, steps(relax.op.divide, reach, (bounds[1] - bounds[0]) / 2), epsilon)
    return scale, node.literal(np.full(shape_of(scale), point, np.float32))


def _bounds(node: Node, least: Any, most: Any) -> tuple[int, int]:
    low, high = node.integer(least), node.integer(most)
    node.require(low < high, f"has the bounds {low} and {high}")
    return low, high


def _of_tensor(*, symmetric: bool) -> Callable[..., list[Value]]:
    """Returns the rule of `choose_qparams`, with one range for the tensor (`determine_qparams` in
    torch/ao/quantization/utils.py).
    """

    def convert(node: Node, input: Any, quant_min: Any, quant_max: Any, eps: Any, dtype: Any) -> list[Value]:
        x, bounds = operand(node, input), _bounds(node, quant_min, quant_max)
        flat = node.emit(relax.op.reshape(x, (math.prod(shape_of(x)),)), "flat")
        ends, epsilon = _extremes(node, flat, [0]), float(np.float32(node.real(eps)))
        if symmetric:
            point = 128 if dtype == "uint8" else 0
            return [Value(each) for each in _symmetric(node, ends, bounds, epsilon, point)]
        return [Value(each) for each in _asymmetric(node, ends, bounds, epsilon)]

    return convert


def _of_tokens(node: Node, input: Any, dtype: Any) -> list[Value]:
    """`choose_qparams_per_token`: a symmetric range for each row."""
    x, steps = operand(node, input), _Steps(node, "float32")
    node.require_supported(dtype == "int8", f"quantizes to {dtype}")
    most = node.emit(relax.op.max(steps(relax.op.abs, x), axis=[len(shape_of(x)) - 1], keepdims=True), "most")
    scale = steps(relax.op.divide, steps(relax.op.maximum, most, _LEAST_SCALE_OF_TOKEN), 127.0)
    return [Value(scale), Value(node.literal(np.zeros(shape_of(scale), np.float32)))]


def _of_tokens_asymmetric(node: Node, input: Any, dtype: Any) -> list[Value]:
    """`choose_qparams_per_token_asymmetric`: a range for each row, with XNNPACK's choice of the zero point. Scales
    are float64.
    """
    x, steps, (least, most) = operand(node, input), _Steps(node, "float32"), (-128, 127)
    low, high = _extremes(node, x, [len(shape_of(x)) - 1])
    scale = steps(relax.op.divide, steps(relax.op.subtract, high, low), float(most - least))
    scale = steps(relax.op.maximum, scale, _EPSILON)
    below, above = steps(relax.op.divide, low, scale), steps(relax.op.divide, high, scale)
    errors = steps(relax.op.add, steps(relax.op.add, below, float(least)), steps(relax.op.add, above, float(most)))
    from_low, from_high = (
        steps(relax.op.subtract, float(bound), end) for bound, end in ((least, below), (most, above))
    )
    point = node.emit(relax.op.where(steps(relax.op.greater, errors, 0.0), from_low, from_high), "point")
    point = steps(relax.op.round, steps.between(point, least, most))
    wide = _Steps(node, "float64")
    return [Value(wide.of(scale)), Value(wide.of(point))]


def _stored_type(node: Node, dtype: Any) -> str:
    node.require_supported(dtype in _STORED, "quantizes to a type that cannot be compiled")
    return str(dtype)


def _quantize(node: Node, input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any) -> Value:
    """`quantize_per_tensor` with computed parameters: round(x / scale) + zero point."""
    reciprocal = _Steps(node, "float64")
    inverse = reciprocal(relax.op.divide, 1.0, reciprocal.of(node.tensor(scale).expr))
    steps, bounds = _Steps(node, "float32"), _bounds(node, quant_min, quant_max)
    rounded = steps(relax.op.round, steps(relax.op.multiply, operand(node, input), steps.of(inverse)))
    moved = steps(relax.op.add, rounded, steps.of(node.tensor(zero_point).expr))
    return node.value(relax.op.astype(steps.between(moved, *bounds), _stored_type(node, dtype)), None)


def _quantize_tokens(
    node: Node, input: Any, scales: Any, zero_points: Any, quant_min: Any, quant_max: Any, dtype: Any
) -> Value:
    """`quantize_per_token`: round(x / scale + zero point), in the type of the scales."""
    factor, point = node.tensor(scales), node.tensor(zero_points)
    steps = _Steps(node, factor.dtype)
    inverse = steps(relax.op.divide, 1.0, factor.expr)
    moved = steps(relax.op.multiply, steps.of(operand(node, input)), inverse)
    moved = steps(relax.op.round, steps(relax.op.add, moved, steps.of(point.expr)))
    bounded = steps.between(moved, *_bounds(node, quant_min, quant_max))
    return node.value(relax.op.astype(bounded, _stored_type(node, dtype)), None)


def _dequantize(
    node: Node,
    input: Any,
    scale: Any,
    zero_point: Any,
    quant_min: Any,
    quant_max: Any,
    dtype: Any,
    output_dtype: Any = None,
    *,
    out_dtype: Any = None,
) -> Value:
    """`dequantize_per_tensor` and `dequantize_per_token` with computed parameters: (stored - zero point) * scale, in
    the type of the scale.
    """
    factor, point = node.tensor(scale), node.tensor(zero_point)
    node.require_supported({output_dtype, out_dtype} <= {None, "float32"}, "dequantizes to another type than float32")
    steps = _Steps(node, factor.dtype)
    moved = steps(relax.op.subtract, steps.of(node.tensor(input).expr), steps.of(point.expr))
    scaled = steps(relax.op.multiply, moved, factor.expr)
    return Value(_Steps(node, "float32").of(scaled))


# -- torchao's blocks


def _apart(node: Node, shape: Sequence[int], block_size: Any) -> tuple[list[int], list[int], list[int]]:
    """Returns a shape in which each block has axes of its own, the axes inside of blocks, and the shape of the
    parameters (`_get_reduction_params`).
    """
    sizes = node.sizes(block_size)
    fits = len(sizes) == len(shape) and all(
        block > 0 and size % block == 0 for size, block in zip(shape, sizes, strict=False)
    )
    node.require(fits, f"divides shape {list(shape)} into blocks of {sizes[:8]}")
    parts: list[int] = []
    inside: list[int] = []
    for size, block in zip(shape, sizes, strict=True):
        if block == size and block > 1:
            inside.append(len(parts))
            parts.append(size)
        elif block > 1:
            inside.append(len(parts) + 1)
            parts += [size // block, block]
        else:
            parts.append(size)
    return parts, inside, [1 if axis in inside else size for axis, size in enumerate(parts)]


def _bounds_of(node: Node, dtype: Any, least: Any, most: Any) -> tuple[int, int]:
    """Returns the bounds of stored values: those of their type, unless others are given."""
    low, high = STORAGE_RANGES.get(str(dtype), (None, None))
    return _bounds(node, low if least is None else least, high if most is None else most)


def _choose_affine(
    node: Node,
    input: Any,
    mapping_type: Any,
    block_size: Any,
    target_dtype: Any,
    quant_min: Any = None,
    quant_max: Any = None,
    eps: Any = None,
    scale_dtype: Any = None,
    zero_point_dtype: Any = None,
    keepdim: Any = False,
) -> list[Value]:
    """`choose_qparams_affine`: a range for each block."""
    x = operand(node, input)
    parts, inside, _ = _apart(node, shape_of(x), block_size)
    least, most = _bounds_of(node, target_dtype, quant_min, quant_max)
    bounds = least, most
    node.require_supported(scale_dtype in (None, "float32"), "has scales of another type than float32")
    epsilon = float(np.finfo(np.float32).tiny) if eps is None else float(np.float32(node.real(eps)))
    ends = _extremes(node, node.emit(relax.op.reshape(x, parts), "blocks"), inside)
    if mapping_type == "SYMMETRIC":
        made = _symmetric(node, ends, bounds, epsilon, int((bounds[0] + bounds[1] + 1) / 2))
    else:
        node.require_supported(mapping_type == "ASYMMETRIC", "has a mapping other than SYMMETRIC and ASYMMETRIC")
        made = _asymmetric(node, ends, bounds, epsilon)
    kept = [size for axis, size in enumerate(parts) if axis not in inside]
    if keepdim:
        kept = [size // block for size, block in zip(shape_of(x), node.sizes(block_size), strict=True)]
    return [node.value(relax.op.reshape(each, kept), None) for each in made]


def _quantize_affine(
    node: Node,
    input: Any,
    block_size: Any,
    scale: Any,
    zero_point: Any,
    output_dtype: Any,
    quant_min: Any = None,
    quant_max: Any = None,
    **_: Any,
) -> Value:
    """`quantize_affine` with computed parameters: round(x / scale) + zero point."""
    x, steps = operand(node, input), _Steps(node, "float32")
    shape = shape_of(x)
    parts, _inside, reduced = _apart(node, shape, block_size)
    least, most = _bounds_of(node, output_dtype, quant_min, quant_max)
    factor = node.emit(relax.op.reshape(node.tensor(scale).expr, reduced), "scale")
    scaled = steps(
        relax.op.multiply, node.emit(relax.op.reshape(x, parts), "blocks"), steps(relax.op.divide, 1.0, factor)
    )
    moved = steps(relax.op.round, scaled)
    if zero_point is not None:
        point = node.emit(relax.op.reshape(steps.of(node.tensor(zero_point).expr), reduced), "point")
        moved = steps(relax.op.add, moved, point)
    bounded = steps.between(moved, least, most)
    whole = node.emit(relax.op.reshape(bounded, shape), "whole")
    return node.value(relax.op.astype(whole, _stored_type(node, output_dtype)), None)


def _dequantize_affine(
    node: Node,
    input: Any,
    block_size: Any,
    scale: Any,
    zero_point: Any,
    input_dtype: Any,
    quant_min: Any = None,
    quant_max: Any = None,
    output_dtype: Any = None,
    **_: Any,
) -> Value:
    """`dequantize_affine` with computed parameters: (stored - zero point) * scale."""
    node.require_supported(output_dtype in (None, "float32"), "dequantizes to another type than float32")
    x, steps = node.tensor(input), _Steps(node, "float32")
    parts, _inside, reduced = _apart(node, x.shape, block_size)
    moved = node.emit(relax.op.reshape(steps.of(x.expr), parts), "blocks")
    if zero_point is not None:
        point = node.emit(relax.op.reshape(steps.of(node.tensor(zero_point).expr), reduced), "point")
        moved = steps(relax.op.subtract, moved, point)
    factor = node.emit(relax.op.reshape(node.tensor(scale).expr, reduced), "scale")
    return node.value(relax.op.reshape(steps(relax.op.multiply, moved, factor), x.shape), None)


_CHOSEN = "quantized_decomposed::choose_qparams"
RULES: dict[str, Callable[..., Any]] = {
    _CHOSEN: _of_tensor(symmetric=False),
    f"{_CHOSEN}_symmetric": _of_tensor(symmetric=True),
    f"{_CHOSEN}_per_token": _of_tokens,
    f"{_CHOSEN}_per_token_asymmetric": _of_tokens_asymmetric,
    "quantized_decomposed::_choose_qparams_per_token_asymmetric_impl": _of_tokens_asymmetric,
    "quantized_decomposed::quantize_per_tensor": _quantize,
    "quantized_decomposed::quantize_per_token": _quantize_tokens,
    "quantized_decomposed::dequantize_per_tensor": _dequantize,
    "quantized_decomposed::dequantize_per_token": _dequantize,
    "torchao::choose_qparams_affine": _choose_affine,
    "torchao::dequantize_affine": _dequantize_affine,
    "torchao::quantize_affine": _quantize_affine,
}
