"""Operators that resize rows `[N, C, L]`, images `[N, C, H, W]` and volumes `[N, C, D, H, W]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import steps
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops

_LARGEST = 1 << 16  # limit of an image's rows or columns
Places = npt.NDArray[np.int64]


def _upsample_nearest2d(
    node: Node, input: Any, output_size: Any, scales_h: Any = None, scales_w: Any = None, *, scale_factors: Any = None
) -> Value:
    """Resizes `[N, C, H, W]`, which may contain stored values. The overload `.vec` has a list of both factors instead
    of `scales_h` and `scales_w`; either the factors or the size are given.
    """
    x = node.tensor(input)
    node.require(len(x.shape) == 4, f"has an input of shape {list(x.shape)}, not [N, C, H, W]")
    factors = scale_factors if scales_h is None else scales_h
    if not isinstance(factors, list):
        factors = [scales_h, scales_w]
    node.require(len(factors) == 2, f"has {len(factors)} factors, but needs two")
    scales = [None if factor is None else node.real(factor) for factor in factors]
    node.require(
        all(scale is None or 1 / _LARGEST <= scale <= _LARGEST for scale in scales),
        f"has the factors {scales}, which are out of range",
    )
    if output_size is None:
        node.require(None not in scales, "has neither a size nor factors")
        sizes = [int(before * scale) for before, scale in zip(x.shape[2:], scales, strict=True) if scale is not None]
    else:
        sizes = node.sizes(output_size)
    fits = len(sizes) == 2 and all(1 <= size <= _LARGEST for size in sizes)
    node.require(fits, f"computes images of {sizes[:4]}; at most {_LARGEST} rows and columns can be compiled")
    rows, columns = (_nearest(node, *each) for each in zip(x.shape[2:], sizes, scales, strict=True))
    kind = x.quantized
    if kind is not None and kind.is_per_tensor:
        chosen = {"rows": rows.tolist(), "columns": columns.tolist()}
        return node.image(x, lambda image: ops.take_pixels(image, kind, **chosen), kind)
    taken = node.emit(relax.op.take(x.expr, relax.const(rows, "int64"), 2, mode="clip"), "rows")
    return node.value(relax.op.take(taken, relax.const(columns, "int64"), 3, mode="clip"), kind)


def _nearest(node: Node, before: int, after: int, scale: float | None, *, exact: bool = False) -> Places:
    """Returns min(floor(place * ratio), before - 1) in float32 (`nearest_neighbor_compute_source_index` in
    ATen/native/UpSample.h). Kernels of real values have shortcuts for equal and for doubled sizes (`nearest_idx`);
    kernels of quantized tensors do not. If a factor gives such a size only after rounding, the positions can therefore
    differ.
    """
    ratio = np.float32(before) / np.float32(after) if scale is None else np.float32(1 / scale)
    positions = np.arange(after, dtype=np.int64)
    if exact:
        centres = positions.astype(np.float32) + np.float32(0.5)
        return np.asarray(np.minimum(np.floor(centres * ratio).astype(np.int64), before - 1))
    found: Places = np.minimum(np.floor(positions.astype(np.float32) * ratio).astype(np.int64), before - 1)
    short = positions if after == before else positions >> 1 if after == 2 * before else found
    if not np.array_equal(found, short):
        node.unsupported(f"resizes {before} to {after} with the factor {scale}, for which PyTorch's kernels differ")
    return found


def _along(node: Node, x: Value, axis: int, places: Places) -> Value:
    taken = relax.op.take(x.expr, relax.const(places, "int64"), axis, mode="clip")
    return Value(node.emit(taken), x.quantized, x.exact_scale)


def _sizes(node: Node, x: Value, output_size: Any, factors: list[Any]) -> tuple[list[int], list[float | None]]:
    """Returns the sizes of the result's last dimensions, and the factors that were given."""
    if len(factors) == 1 and isinstance(factors[0], list | tuple):
        factors = list(factors[0])
    scales = [None if factor is None else node.real(factor) for factor in factors]
    node.require(
        all(scale is None or 1 / _LARGEST <= scale <= _LARGEST for scale in scales),
        f"has the factors {scales}, which are out of range",
    )
    before = x.shape[2:]
    if output_size is None:
        known = [scale for scale in scales if scale is not None]
        node.require(len(known) == len(before), "has neither a size nor factors")
        sizes = [int(size * scale) for size, scale in zip(before, known, strict=True)]
    else:
        sizes = node.sizes(output_size)
    fits = len(sizes) == len(before) and all(1 <= size <= _LARGEST for size in sizes)
    node.require(fits, f"computes images of {sizes[:4]}; at most {_LARGEST} rows and columns can be compiled")
    return sizes, scales if len(scales) == len(sizes) else [None] * len(sizes)


def _nearest_of(*, exact: bool) -> Callable[..., Value]:
    """Returns the rule for rows, images or volumes. With `exact`, an element's position is its centre."""

    def convert(node: Node, input: Any, output_size: Any, *factors: Any, scale_factors: Any = None) -> Value:
        x = node.tensor(input)
        given = list(factors) if scale_factors is None else list(scale_factors)
        sizes, scales = _sizes(node, x, output_size, given or [None] * (len(x.shape) - 2))
        for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True), start=2):
            x = _along(node, x, axis, _nearest(node, x.shape[axis], size, scale, exact=exact))
        return x

    return convert


def _linear(
    node: Node, input: Any, output_size: Any, align_corners: Any, *factors: Any, scale_factors: Any = None
) -> Value:
    """Converts interpolations along the last dimensions of rows, images or volumes, of real values or stored ones."""
    x = node.tensor(input)
    given = list(factors) if scale_factors is None else list(scale_factors)
    sizes, scales = _sizes(node, x, output_size, given or [None] * (len(x.shape) - 2))
    aligned = node.flag(align_corners)
    real = Value(x.expr) if x.quantized is None else Value(node.emit(relax.op.astype(x.expr, "float32"), "stored"))
    # PyTorch interpolates along the last dimension first
    for axis in reversed(range(2, len(x.shape))):
        real = _blended(node, real, axis, _linear_positions(x.shape[axis], sizes[axis - 2], scales[axis - 2], aligned))
    if x.quantized is None:
        return real
    return Value(steps.stored_value(node, real.expr, x.quantized).expr, x.quantized, x.exact_scale)


def _linear_positions(before: int, after: int, scale: float | None, aligned: bool) -> npt.NDArray[np.float32]:
    """Returns positions in the operand (`area_pixel_compute_source_index` in UpSample.h), in float32."""
    places = np.arange(after, dtype=np.float32)
    half = np.float32(0.5)
    if aligned:
        ratio = np.float32(before - 1) / np.float32(after - 1) if after > 1 else np.float32(0)
        return np.asarray(places * ratio, np.float32)
    ratio = np.float32(before) / np.float32(after) if scale is None else np.float32(1 / scale)
    wide = (places + half).astype(np.float64) * np.float64(ratio) - 0.5  # one fused multiply-add
    return np.maximum(wide.astype(np.float32), np.float32(0))


def _blended(node: Node, x: Value, axis: int, positions: npt.NDArray[np.float32]) -> Value:
    last = x.shape[axis] - 1
    first = np.minimum(np.floor(positions).astype(np.int64), last)
    later = (positions - first.astype(np.float32)).astype(np.float32)
    behind = [1] * (len(x.shape) - axis - 1)
    parts = []
    for places, weight in ((first, np.float32(1) - later), (np.minimum(first + 1, last), later)):
        factor = relax.const(weight.astype(np.float32).reshape(-1, *behind))
        parts.append((_along(node, x, axis, places).expr, factor))
    (first_part, first_weight), second = parts
    product = node.emit(relax.op.multiply(*second), "part")
    return node.value(ops.real_fma(first_part, first_weight, product), None)


RULES: dict[str, Callable[..., Value]] = {
    "aten::_upsample_nearest_exact1d": _nearest_of(exact=True),
    "aten::_upsample_nearest_exact2d": _nearest_of(exact=True),
    "aten::_upsample_nearest_exact3d": _nearest_of(exact=True),
    "aten::upsample_bilinear2d": _linear,
    "aten::upsample_linear1d": _linear,
    "aten::upsample_nearest1d": _nearest_of(exact=False),
    "aten::upsample_nearest2d": _upsample_nearest2d,
    "aten::upsample_nearest3d": _nearest_of(exact=False),
    "aten::upsample_trilinear3d": _linear,
}
