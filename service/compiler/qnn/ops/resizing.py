"""Operators that change the size of images."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, same_storage, tensor_type
from service.compiler.qnn.types import QuantizedType


def resize_bilinear(
    x: relax.Expr,
    in_type: QuantizedType,
    out_type: QuantizedType,
    *,
    size: Sequence[int],
    align_corners: bool,
    half_pixel_centers: bool,
) -> relax.Call:
    """Resizes `[N, H, W, C]` to `size` rows and columns, interpolating between four pixels.

    Both types have the same scale and zero point.

    Args:
        align_corners: true if the outermost pixels keep their positions.
        half_pixel_centers: true if a pixel's position is its centre.
    """
    attrs = {"size": size, "align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return call_of("resize_bilinear", [x], in_type=in_type, out_type=out_type, **attrs)


def take_pixels(x: relax.Expr, kind: QuantizedType, *, rows: Sequence[int], columns: Sequence[int]) -> relax.Call:
    """Picks rows and columns of `[N, H, W, C]` of type `kind`, in the given order: `[N, len(rows), len(columns), C]`.

    Each row and column may be picked more than once.
    """
    return call_of("take_pixels", [x], in_type=kind, out_type=kind, rows=rows, columns=columns)


def _take_pixels(o: Operation) -> relax.TensorType:
    o.count(1)
    in_type, out_type = o.per_tensor("in_type"), o.per_tensor("out_type")
    n, height, width, channels = o.stored(0, in_type, rank=4)
    o.require(in_type == out_type, f"copies stored values, so {in_type} cannot become {out_type}")
    sizes = []
    for name, extent in (("rows", height), ("columns", width)):
        positions = [int(position) for position in o.attr(name)]
        o.require(
            bool(positions) and min(positions) >= 0 and max(positions) < extent,
            f"{name} must be indices below {extent}",
        )
        sizes.append(len(positions))
    return tensor_type((n, *sizes, channels), same_storage(o))


def _resize_bilinear(o: Operation) -> relax.TensorType:
    o.count(1)
    in_type, out_type = o.per_tensor("in_type"), o.per_tensor("out_type")
    n, _, _, channels = o.stored(0, in_type, rank=4)
    same = (in_type.scale, in_type.zero_point) == (out_type.scale, out_type.zero_point)
    o.require(same, f"interpolates stored values, so {in_type} cannot become {out_type}")
    o.require(
        not (o.flag("align_corners") and o.flag("half_pixel_centers")),
        "align_corners and half_pixel_centers exclude each other",
    )
    return tensor_type((n, *o.ints("size", 2, 1), channels), same_storage(o))


RULES: dict[str, Rule] = {
    "take_pixels": _take_pixels,
    "resize_bilinear": _resize_bilinear,
}
