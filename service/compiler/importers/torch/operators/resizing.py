"""Operators that resize images: `aten::upsample_nearest2d`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from service.compiler.importers.torch.node import Node
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


def _nearest(node: Node, before: int, after: int, scale: float | None) -> Places:
    """Returns min(floor(place * ratio), before - 1) in float32 (`nearest_neighbor_compute_source_index` in
    ATen/native/UpSample.h). Kernels of real values have shortcuts for equal and for doubled sizes (`nearest_idx`);
    kernels of quantized tensors do not. If a factor gives such a size only after rounding, the positions can therefore
    differ.
    """
    ratio = np.float32(before) / np.float32(after) if scale is None else np.float32(1 / scale)
    positions = np.arange(after, dtype=np.int64)
    found: Places = np.minimum(np.floor(positions.astype(np.float32) * ratio).astype(np.int64), before - 1)
    short = positions if after == before else positions >> 1 if after == 2 * before else found
    if not np.array_equal(found, short):
        node.unsupported(f"resizes {before} to {after} with the factor {scale}, for which PyTorch's kernels differ")
    return found


RULES = {"aten::upsample_nearest2d": _upsample_nearest2d}
