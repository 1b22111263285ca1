"""Describes reshapes, permutations and slices as views of a tensor, so that no elements need to be copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.kernels.group import shape_of
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.matrices import Strided

_DTYPES = (*BIAS, "float32")
Bindings = Sequence[tuple[relax.Var, relax.Expr]]


@dataclass(frozen=True)
class Seen:
    """A view of the tensor `source`: all or some of its elements, possibly in an order different from that of
    `source`.
    """

    source: relax.Var
    view: Strided

    @staticmethod
    def whole(var: relax.Var) -> Seen:
        return Seen(var, Strided.of(shape_of(var)))


def seen_by(bindings: Bindings) -> dict[relax.Var, Seen]:
    """Maps each reshaped, permuted or sliced variable to its description as a view of the chain's first tensor."""
    found: dict[relax.Var, Seen] = {}
    for var, value in bindings:
        source = _moved_tensor(value)
        if source is None:
            continue
        for before in (found.get(source), Seen.whole(source)):
            view = None if before is None else _after(value, before.view)
            if before is not None and view is not None:
                found[var] = Seen(before.source, view)
                break
    return found


def put_into(
    var: relax.Var,
    readers: Mapping[relax.Var, list[tuple[relax.Var, relax.Expr]]],
    uses: Counter[relax.Var],
    views: Collection[relax.Var],
) -> tuple[list[relax.Var], Strided]:
    """Follows the chain of reshapes and permutations that begins at the matrices `var`, while each has only one reader.

    Returns the variables of the chain, and a view of the last variable. The view contains the elements in the order of
    `var`. Its rows are contiguous, so a kernel that computes `var` can write the last variable directly.

    Args:
        readers: the result of `readers_of`.
        views: variables that have the memory layout of their operand. The chain does not end at one of them.
    """
    steps: list[tuple[relax.Var, relax.Expr]] = []
    best: tuple[list[relax.Var], Strided] = [], Strided.of(shape_of(var))
    last = var
    while uses[last] == 1 and len(readers.get(last, ())) == 1:
        after, value = readers[last][0]
        if _moved_tensor(value) is None or _name(value) == "relax.strided_slice":
            break
        steps.append((after, value))
        last = after
        view = _before(steps)
        if view is not None and view.of_rows and after not in views:
            best = [each for each, _ in steps], view
    return best


def channels_of(value: relax.Call) -> tuple[int, int] | None:
    """Returns (first channel, number of channels) of a slice of neighboring channels; None for other slices."""
    source, shape = value.args[0], shape_of(value)
    before = shape_of(source)
    view = _after(value, Strided.of(before)) if str(source.ty.dtype) in BIAS else None
    if view is None or shape[:-1] != before[:-1] or 0 in shape:
        return None
    return view.offset, shape[-1]


def readers_of(bindings: Bindings) -> dict[relax.Var, list[tuple[relax.Var, relax.Expr]]]:
    """Maps each variable to the bindings that reshape, permute or slice it."""
    found: dict[relax.Var, list[tuple[relax.Var, relax.Expr]]] = {}
    for var, value in bindings:
        source = _moved_tensor(value)
        if source is not None:
            found.setdefault(source, []).append((var, value))
    return found


def _name(value: relax.Expr) -> str:
    return str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""


def _moved_tensor(value: relax.Expr) -> relax.Var | None:
    """Returns the operand of `value` if it is a reshape, permutation or slice of an 8-bit or float32 tensor, else
    None.
    """
    if _name(value) not in ("relax.reshape", "relax.permute_dims", "relax.strided_slice"):
        return None
    source = value.args[0]
    return source if isinstance(source, relax.Var) and str(source.ty.dtype) in _DTYPES else None


def _axes(value: relax.Call) -> list[int]:
    rank = len(shape_of(value))
    return list(range(rank))[::-1] if value.attrs.axes is None else [int(axis) % rank for axis in value.attrs.axes]


def _after(value: relax.Call, view: Strided) -> Strided | None:
    """Applies the reshape, permutation or slice `value` to `view`. Returns None if the result is not a strided view."""
    match _name(value):
        case "relax.reshape":
            return view.reshaped(shape_of(value))
        case "relax.permute_dims":
            return view.permuted(_axes(value))
    axes, begin, end, *named = ([int(field.value) for field in arg.fields] for arg in value.args[1:])
    for axis, first, stop, step in zip(axes, begin, end, named[0] if named else [1] * len(axes), strict=True):
        first, stop, step = slice(first, stop, step).indices(view.shape[axis])
        if step != 1:
            return None
        view = view.sliced(axis, first, max(first, stop))
    return view if view.shape == shape_of(value) else None


def _before(steps: Sequence[tuple[relax.Var, relax.Expr]]) -> Strided | None:
    """Returns a view of a chain's last variable, with the elements in the order of the chain's first operand.

    Returns None if no strided view has this order.
    """
    view: Strided | None = Strided.of(shape_of(steps[-1][0]))
    for _, value in reversed(steps):
        if view is None:
            return None
        if _name(value) == "relax.permute_dims":
            view = view.permuted([int(position) for position in np.argsort(_axes(value))])
        else:
            view = view.reshaped(shape_of(value.args[0]))
    return view
