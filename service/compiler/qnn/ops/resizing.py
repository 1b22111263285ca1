"""Images of another size."""

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
    """`[N, H, W, C]` at `size` rows and columns, each pixel between four; both types are stored alike.

    Args:
        align_corners: whether the outermost pixels keep their places.
        half_pixel_centers: whether a pixel's place is its middle.
    """
    attrs = {"size": size, "align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return call_of("resize_bilinear", [x], in_type=in_type, out_type=out_type, **attrs)


def _resize_bilinear(o: Operation) -> relax.TensorType:
    o.count(1)
    in_type, out_type = o.per_tensor("in_type"), o.per_tensor("out_type")
    n, _, _, channels = o.stored(0, in_type, rank=4)
    same = (in_type.scale, in_type.zero_point) == (out_type.scale, out_type.zero_point)
    o.require(same, f"interpolates stored values, so {in_type} cannot become {out_type}")
    o.require(not (o.flag("align_corners") and o.flag("half_pixel_centers")), "has both kinds of corners")
    return tensor_type((n, *o.ints("size", 2, 1), channels), same_storage(o))


RULES: dict[str, Rule] = {
    "resize_bilinear": _resize_bilinear,
}
