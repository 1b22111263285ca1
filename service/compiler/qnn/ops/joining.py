"""The operator that joins several tensors into one."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType


def concatenate(
    parts: Sequence[relax.Expr], in_types: Sequence[QuantizedType], out_type: QuantizedType, axis: int
) -> relax.Call:
    """Joins `parts` along `axis` (not negative), rescaling each part whose type differs from `out_type`."""
    return call_of("concatenate", [relax.Tuple(list(parts))], in_types=in_types, out_type=out_type, axis=axis)


def _concatenate(o: Operation) -> relax.TensorType:
    o.count(1)
    fields = list(getattr(o.call.args[0].ty, "fields", None) or ())
    in_types = o.quantized_parts()
    o.require(bool(fields) and len(fields) == len(in_types), "needs at least one part, and one type for each")
    axis, total, first = int(o.attr("axis")), 0, None
    for index, (field, in_type) in enumerate(zip(fields, in_types, strict=True)):
        shape, dtype = o.static(field, f"part {index}")
        o.require(in_type.is_per_tensor, f"part {index} must be quantized per tensor")
        o.require(dtype == in_type.dtype, f"part {index} is {dtype}, but its type is {in_type}")
        o.require(0 <= axis < len(shape), f"axis {axis} is outside the shape {list(shape)}")
        rest = (*shape[:axis], *shape[axis + 1 :])
        first = first or (rest, shape)
        o.require(rest == first[0], f"part {index} has shape {list(shape)}, which does not fit {list(first[1])}")
        total += shape[axis]
    assert first is not None
    return tensor_type((*first[1][:axis], total, *first[1][axis + 1 :]), o.per_tensor("out_type").dtype)


RULES: dict[str, Rule] = {
    "concatenate": _concatenate,
}
