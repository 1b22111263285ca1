"""Comparisons, conditions, the larger of two values, and the positions of the largest values. Operands are real values,
integers or booleans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.movement import part_of
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops

Binary = Callable[[relax.Expr, relax.Expr], relax.Call]
_RANKS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32")  # in the order of PyTorch's promotion


def plain(node: Node, value: Any) -> Value:
    """Returns a tensor of real values, integers or booleans."""
    x = node.tensor(value)
    if x.quantized is not None or x.dtype not in _RANKS:
        node.unsupported(f"on {x.dtype}", hint="dequantize all of its operands, or none")
    return x


def promoted(node: Node, *values: Any) -> tuple[relax.Expr, ...]:
    """Returns operands in one type, as PyTorch promotes them: numbers, and constants without axes, take the type of the
    tensors, unless a real number meets integers.
    """
    tensors = [plain(node, each) for each in values if not _is_number(each)]
    node.require(bool(tensors), "has no tensor as an operand")
    dtype = max((each.dtype for each in tensors), key=_RANKS.index)
    numbers = [_number(each) for each in values if _is_number(each)]
    if any(isinstance(each, float) for each in numbers):
        dtype = "float32"
    elif any(not isinstance(each, bool) for each in numbers) and dtype == "bool":
        dtype = "int64"
    return tuple(
        relax.const(np.array(_number(each), dtype), dtype) if _is_number(each) else cast(node, plain(node, each), dtype)
        for each in values
    )


def cast(node: Node, x: Value, dtype: str) -> relax.Expr:
    return x.expr if x.dtype == dtype else node.emit(relax.op.astype(x.expr, dtype), "cast")


def _is_number(value: Any) -> bool:
    is_scalar = isinstance(value, Tensor) and value.data.ndim == 0 and value.quantization is None
    return is_scalar or isinstance(value, bool | int | float)


def _number(value: Any) -> bool | int | float:
    number: bool | int | float = value.data.item() if isinstance(value, Tensor) else value
    return number


def _compared(make: Binary) -> Callable[..., Value]:
    def convert(node: Node, a: Any, b: Any) -> Value:
        return node.value(make(*promoted(node, a, b)), None)

    return convert


def _logical(make: Binary) -> Callable[..., Value]:
    def convert(node: Node, a: Any, b: Any) -> Value:
        return node.value(make(_truth(node, a), _truth(node, b)), None)

    return convert


def _truth(node: Node, value: Any) -> relax.Expr:
    """Returns true for each value that is not 0."""
    x = plain(node, value)
    if x.dtype == "bool":
        return x.expr
    return node.emit(relax.op.not_equal(x.expr, relax.const(np.array(0, x.dtype), x.dtype)), "truth")


def _not(node: Node, input: Any) -> Value:
    x = plain(node, input)
    return node.value(relax.op.logical_not(_truth(node, x)), None)


def _reduced_truth(make: Callable[..., relax.Call]) -> Callable[..., Value]:
    """Returns the rule of `all` or `any`, which `make` computes on 0 and 1."""

    def convert(node: Node, input: Any, dim: Any = None, keepdim: Any = False) -> Value:
        x = plain(node, input)
        axes = node.reduced_axes(None if dim in (None, [], ()) else dim, len(x.shape))
        numbers = node.emit(relax.op.astype(_truth(node, x), "int8"), "numbers")
        found = node.emit(make(numbers, axis=axes, keepdims=node.flag(keepdim)), "found")
        return node.value(relax.op.greater(found, relax.const(np.array(0, np.int8), "int8")), None)

    return convert


def _bitwise_not(node: Node, input: Any) -> Value:
    x = plain(node, input)
    node.require_supported(x.dtype == "bool", f"on {x.dtype}; only bool can be compiled")
    return _not(node, x)


def _where(node: Node, condition: Any, input: Any, other: Any) -> Value:
    chosen = _truth(node, condition)
    if _is_number(input) and _is_number(other):
        dtype = "float32" if isinstance(_number(input), float) or isinstance(_number(other), float) else "int64"
        ends = [relax.const(np.array(_number(each), dtype), dtype) for each in (input, other)]
        return node.value(relax.op.where(chosen, *ends), None)
    return node.value(relax.op.where(chosen, *promoted(node, input, other)), None)


def _masked_fill(node: Node, input: Any, mask: Any, value: Any) -> Value:
    x = plain(node, input)
    number = np.array(_number(value) if _is_number(value) else node.real(value))
    filling = relax.const(number.astype(x.dtype), x.dtype)
    return node.value(relax.op.where(_truth(node, mask), filling, x.expr), None)


# -- the larger and the smaller value


def _extreme_of_two(make: Binary) -> Callable[..., Value]:
    def convert(node: Node, input: Any, other: Any) -> Value:
        return node.value(make(*promoted(node, input, other)), None)

    return convert


def _clamp_at(make: Binary) -> Callable[..., Value]:
    def convert(node: Node, input: Any, bound: Any) -> Value:
        return node.value(make(*promoted(node, input, bound)), None)

    return convert


def _extreme(make: Binary, reduce: Callable[..., relax.Call], place: Callable[..., relax.Call]) -> Callable[..., Any]:
    """Returns the rule of `aten::max` or `aten::min`: of all values; of two tensors; or along an axis, with the
    positions.
    """

    def convert(node: Node, input: Any, other: Any = None, keepdim: Any = False) -> Any:
        x = plain(node, input)
        if other is None:
            return node.value(reduce(x.expr, axis=list(range(len(x.shape)))), None)
        if not isinstance(other, int) or isinstance(other, bool):
            return node.value(make(*promoted(node, x, other)), None)
        axis, kept = node.axis(other, len(x.shape)), node.flag(keepdim)
        most = node.value(reduce(x.expr, axis=[axis], keepdims=kept), None)
        return most, node.value(place(x.expr, axis, kept), None)

    return convert


def _place(place: Callable[..., relax.Call]) -> Callable[..., Value]:
    def convert(node: Node, input: Any, dim: Any = None, keepdim: Any = False) -> Value:
        x = plain(node, input)
        if dim is None:
            flat = node.emit(relax.op.reshape(x.expr, [math.prod(x.shape)]), "flat")
            return node.value(place(flat, 0, False), None)
        return node.value(place(x.expr, node.axis(dim, len(x.shape)), node.flag(keepdim)), None)

    return convert


def _topk(
    node: Node, input: Any, k: Any, dim: Any = -1, largest: Any = True, sorted: Any = True
) -> tuple[Value, Value]:
    """Converts `aten::topk`. Of equal values, the first one comes first; PyTorch promises no order."""
    return _ordered(node, plain(node, input), node.integer(k, 1), dim, largest=node.flag(largest))


def _sort(node: Node, input: Any, dim: Any = -1, descending: Any = False) -> tuple[Value, Value]:
    x = plain(node, input)
    axis = node.axis(dim, len(x.shape))
    return _ordered(node, x, x.shape[axis], axis, largest=node.flag(descending))


def _argsort(node: Node, input: Any, dim: Any = -1, descending: Any = False) -> Value:
    return _sort(node, input, dim, descending)[1]


def _ordered(node: Node, x: Value, count: int, dim: Any, *, largest: bool) -> tuple[Value, Value]:
    rank = len(x.shape)
    axis = node.axis(dim, rank)
    node.require(count <= x.shape[axis], f"takes {count} of {x.shape[axis]} values")
    turn = [each for each in range(rank) if each != axis] + [axis]
    back = [turn.index(each) for each in range(rank)]
    rows = node.emit(relax.op.permute_dims(x.expr, turn), "rows")
    wide = "float64" if x.dtype == "float32" else "int64"
    keys = node.emit(relax.op.astype(rows, wide), "keys")
    if not largest:
        keys = node.emit(relax.op.negative(keys), "keys")
    places = node.emit(ops.top_places(keys, count=count), "places")
    taken = node.emit(relax.op.gather_elements(rows, places, rank - 1), "taken")
    return tuple(node.value(relax.op.permute_dims(each, back), None) for each in (taken, places))  # type: ignore[return-value]


# -- sums along an axis, and triangles


def _cumsum(node: Node, input: Any, dim: Any, dtype: Any = None) -> Value:
    x = plain(node, input)
    summed = x.expr if x.dtype in ("float32", "int64") else cast(node, x, "int64")
    return node.value(ops.running_sum(summed, axis=node.axis(dim, len(x.shape))), None)


def _triangle(make: Callable[..., relax.Call], cut: Callable[..., Any]) -> Callable[..., Any]:
    def convert(node: Node, input: Any, diagonal: Any = 0) -> Any:
        if isinstance(input, Tensor):
            return Tensor(np.ascontiguousarray(cut(input.data, node.integer(diagonal))))
        x = plain(node, input)
        node.require(len(x.shape) >= 2, f"has an input of shape {list(x.shape)}, which is not a matrix")
        number = cast(node, x, "int8") if x.dtype == "bool" else x.expr
        made = node.value(make(number, node.integer(diagonal)), None)
        return node.value(relax.op.astype(made.expr, "bool"), None) if x.dtype == "bool" else made

    return convert


def _gather(node: Node, input: Any, dim: Any, index: Any, *, sparse_grad: Any = False) -> Value:
    x, places = plain(node, input), plain(node, index)
    axis = node.axis(dim, len(x.shape))
    for other, (size, wanted) in enumerate(zip(x.shape, places.shape, strict=True)):
        if other != axis and wanted < size:
            x = part_of(node, x, other, range(wanted))
    return node.value(relax.op.gather_elements(x.expr, places.expr, axis), None)


def _one_of(node: Node, parts: Sequence[Any], make: Binary) -> Value:
    first, *rest = (plain(node, each) for each in parts)
    for each in rest:
        first = node.value(make(first.expr, each.expr), None)
    return first


_MAXIMUM = _extreme_of_two(relax.op.maximum)
_MINIMUM = _extreme_of_two(relax.op.minimum)
# Rules for operands that are not quantized, like `real.RULES`.
RULES: dict[str, Callable[..., Any]] = {
    "aten::argmax": _place(relax.op.argmax),
    "aten::argmin": _place(relax.op.argmin),
    "aten::argsort": _argsort,
    "aten::all": _reduced_truth(relax.op.min),
    "aten::any": _reduced_truth(relax.op.max),
    "aten::bitwise_and": _logical(relax.op.logical_and),
    "aten::bitwise_not": _bitwise_not,
    "aten::bitwise_or": _logical(relax.op.logical_or),
    "aten::clamp_max": _clamp_at(relax.op.minimum),
    "aten::clamp_min": _clamp_at(relax.op.maximum),
    "aten::cumsum": _cumsum,
    "aten::eq": _compared(relax.op.equal),
    "aten::gather": _gather,
    "aten::ge": _compared(relax.op.greater_equal),
    "aten::gt": _compared(relax.op.greater),
    "aten::le": _compared(relax.op.less_equal),
    "aten::logical_and": _logical(relax.op.logical_and),
    "aten::logical_not": _not,
    "aten::logical_or": _logical(relax.op.logical_or),
    "aten::lt": _compared(relax.op.less),
    "aten::masked_fill": _masked_fill,
    "aten::masked_fill_": _masked_fill,
    "aten::max": _extreme(relax.op.maximum, relax.op.max, relax.op.argmax),
    "aten::maximum": _MAXIMUM,
    "aten::min": _extreme(relax.op.minimum, relax.op.min, relax.op.argmin),
    "aten::minimum": _MINIMUM,
    "aten::ne": _compared(relax.op.not_equal),
    "aten::sort": _sort,
    "aten::topk": _topk,
    "aten::tril": _triangle(relax.op.tril, np.tril),
    "aten::triu": _triangle(relax.op.triu, np.triu),
    "aten::where": _where,
}
