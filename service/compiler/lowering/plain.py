"""Lowers the plain Relax operators for which TVM's own tensor programs would lose NaN.

TVM computes `maximum`, `minimum`, `relu`, `max`, `min` and `sign` by comparisons, so that some or all NaN become
another number. The oracle and the reference runtimes keep NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.numerics.extremes import Scalar, larger, smaller
from service.compiler.qnn.operation import value_of

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
_Combine = Callable[[Scalar, Scalar], Scalar]


def _is_real(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype).startswith("float")


def _binary(name: str, combine: _Combine) -> Legalize:
    """Returns the legalization of an operator on two tensors that are broadcast to one shape."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if not _is_real(call):
            return _by_tvm(builder, call)
        shape = shape_of(call)

        def compute(*operands: Any) -> te.Tensor:
            following = iter(operands)
            values = [_element(arg) or _reader(next(following), len(shape)) for arg in call.args]
            return te.compute(shape, lambda *at: combine(*(value(at) for value in values)), name=name)

        tensors = [arg for arg in call.args if _element(arg) is None]
        return builder.call_te(compute, *tensors, primfunc_name_hint=name)

    return legalize


def _element(arg: relax.Expr) -> Callable[[Any], Scalar] | None:
    """If `arg` is a constant with one element, returns a function that returns this element for any index; else
    None."""
    known = value_of(arg)
    if known is None or known.ndim > 0:
        return None
    value = tirx.const(float(known), str(arg.ty.dtype))
    return lambda at: value


def _reader(tensor: te.Tensor, rank: int) -> Callable[[Any], Scalar]:
    """Returns a function from an index of the result to the element of `tensor` that is broadcast to it.

    The result has `rank` axes.
    """
    extents = [int(extent) for extent in tensor.shape]

    def read(at: Any) -> Scalar:
        return tensor(
            *(0 if extent == 1 else axis for extent, axis in zip(extents, at[rank - len(extents) :], strict=True))
        )

    return read


def _relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not _is_real(call):
        return _by_tvm(builder, call)
    zero = relax.const(np.zeros((), str(call.ty.dtype)), str(call.ty.dtype))
    return _LEGALIZERS["relax.maximum"](builder, builder.normalize(relax.op.maximum(call.args[0], zero)))


def _reduction(name: str, combine: _Combine, identity: float) -> Legalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if not _is_real(call):
            return _by_tvm(builder, call)
        dtype = str(call.ty.dtype)
        reduce = te.comm_reducer(combine, lambda _: tirx.const(identity, dtype), name=name)
        rank = len(shape_of(call.args[0]))
        axes = sorted({int(axis) % rank for axis in call.attrs.axis}) if call.attrs.axis is not None else range(rank)

        def compute(x: te.Tensor) -> te.Tensor:
            reduced = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in axes}

            def element(*at: Any) -> Any:
                kept = at if call.attrs.keepdims else _with_zeros(at, reduced, rank)
                positions = [reduced.get(axis, index) for axis, index in enumerate(kept)]
                return reduce(x(*positions), axis=list(reduced.values()))

            return te.compute(shape_of(call), element, name=name)

        return builder.call_te(compute, call.args[0], primfunc_name_hint=name)

    return legalize


def _with_zeros(at: Sequence[Any], reduced: Collection[int], rank: int) -> list[Any]:
    """Inserts a zero into the index `at` for each of the `reduced` axes, which the result does not have."""
    kept = iter(at)
    return [0 if axis in reduced else next(kept) for axis in range(rank)]


def _sign(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not _is_real(call):
        return _by_tvm(builder, call)
    dtype = str(call.ty.dtype)
    one, minus_one, zero = (tirx.const(value, dtype) for value in (1.0, -1.0, 0.0))

    def sign(x: Scalar) -> Scalar:
        return tirx.Select(x > zero, one, tirx.Select(x < zero, minus_one, x))

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: sign(x(*at)), name="sign")

    return builder.call_te(compute, call.args[0], primfunc_name_hint="sign")


def _by_tvm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return call.op.get_attr("FLegalize")(builder, call)


_LEGALIZERS: Mapping[str, Legalize] = {
    "relax.max": _reduction("largest", larger, -math.inf),
    "relax.maximum": _binary("maximum", larger),
    "relax.min": _reduction("smallest", smaller, math.inf),
    "relax.minimum": _binary("minimum", smaller),
    "relax.nn.relu": _relu,
    "relax.sign": _sign,
}


def lower_plain() -> tvm.ir.transform.Pass:
    """Returns TVM's pass that lowers plain operators, with the programs of this module."""
    return relax.transform.LegalizeOps(dict(_LEGALIZERS))
