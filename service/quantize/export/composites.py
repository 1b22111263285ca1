"""Recognizes groups of operators that an importer created from one operator, and for which ONNX has a single operator.

A group is recognized by the importer's own function. The parameters of that function are guessed from constants and
types near the group, and the function is called with them. If the function's result equals the module's expression, the
group is found. So no formula is written a second time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.file import encoding
from service.compiler.importers.real import Real
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.operation import value_of
from service.core.models.arrays import Array
from service.quantize.export import pictures
from service.quantize.export.composite import Composite, Write
from service.quantize.export.definitions import Definitions, Make
from service.quantize.export.graph import Graph, Order, rank_of

Find = Callable[[Definitions, relax.Var], Composite | None]


def composite(definitions: Definitions, var: relax.Var) -> Composite | None:
    """If a group of operators computes `var`, returns the composite for it; otherwise None."""
    if str(var.ty.dtype) != "float32":
        return None
    for root, finders in _FINDERS.items():
        if definitions.is_call(var, root):
            found = (find(definitions, var) for find in finders)
            return next((each for each in found if each is not None), None)
    return None


def _function(op_type: str, make: Make) -> Find:
    """Returns a function that finds an elementwise function."""

    def find(definitions: Definitions, var: relax.Var) -> Composite | None:
        x = definitions.operand(var, var.ty, make)
        return None if x is None else Composite(x, _elementwise(x, op_type))

    return find


def _with_number(op_type: str, name: str, make: Callable[[float], Make]) -> Find:
    """Returns a function that recognizes the values of an elementwise operator with one parameter, such as the slope of
    a LeakyRelu. The parameter is written as the operator's attribute `name`.
    """

    def find(definitions: Definitions, var: relax.Var) -> Composite | None:
        for number in definitions.numbers_near(var):
            x = definitions.operand(var, var.ty, make(number))
            if x is not None:
                return Composite(x, _elementwise(x, op_type, **{name: number}))
        return None

    return find


def _elementwise(x: relax.Var, op_type: str, *scalars: Array, **attributes: encoding.Attribute) -> Write:
    def write(graph: Graph, var: relax.Var) -> None:
        order = graph.order_of(x)
        graph.put(var, op_type, [graph.tensor(x, order), *map(graph.constant, scalars)], order, **attributes)

    return write


def _clip(definitions: Definitions, var: relax.Var) -> Composite | None:
    """Finds min(max(x, low), high)."""
    outer = definitions.of(var)
    inner = definitions.of(outer.args[0])
    if not definitions.is_call(inner, "maximum"):
        return None
    x, bounds = inner.args[0], [value_of(call.args[1]) for call in (inner, outer)]
    scalars = [bound.reshape(()) for bound in bounds if bound is not None and bound.size == 1]
    if len(scalars) != 2 or not isinstance(x, relax.Var) or shape_of(x) != shape_of(var):
        return None
    return Composite(x, _elementwise(x, "Clip", *scalars))


def _softmax(definitions: Definitions, var: relax.Var) -> Composite | None:
    if not definitions.is_near(var, "qnn.real_exp"):
        return None
    logarithm = definitions.is_call(var, "subtract")
    rank = rank_of(var)
    for beta in (1.0, *definitions.numbers_near(var)):
        for axis in range(rank - 1, -1, -1):
            x = definitions.operand(var, var.ty, partial(real.softmax, axis=axis, beta=beta, logarithm=logarithm))
            if x is not None:
                return Composite(x, _softmax_writer(x, axis, beta, logarithm=logarithm))
    return None


def _softmax_writer(x: relax.Var, axis: int, beta: float, *, logarithm: bool) -> Write:
    def write(graph: Graph, var: relax.Var) -> None:
        order = graph.order_of(x)
        name = graph.tensor(x, order)
        if beta != 1.0:
            name = graph.write("Mul", [name, graph.constant(np.array(beta, np.float32))], f"{var.name}_scaled")
        graph.put(var, "LogSoftmax" if logarithm else "Softmax", [name], order, axis=order.index(axis))

    return write


def _mean(definitions: Definitions, var: relax.Var) -> Composite | None:
    for kind in definitions.types_near(var):
        shape = tuple(int(dim) for dim in kind.shape)
        for axes in _axes_near(definitions, var, len(shape)):
            for keepdims in (True, False):
                if _reduced(shape, axes, keepdims=keepdims) != shape_of(var):
                    continue
                for make in _means(axes, keepdims=keepdims):
                    x = definitions.operand(var, kind, make)
                    if x is not None:
                        return Composite(x, _mean_writer(x, axes, keepdims=keepdims))
    return None


def _means(axes: Sequence[int], *, keepdims: bool) -> Iterator[Make]:
    yield lambda made: made.mean(made.x, axes, keepdims=keepdims)

    def of_pictures(made: Real) -> relax.Call:
        count = float(math.prod(shape_of(made.x)[axis] for axis in axes))
        return real.in_float64(
            lambda wide: wide.apply(
                relax.op.divide,
                wide.apply(lambda x: relax.op.sum(x, axis=list(axes), keepdims=keepdims), wide.x),
                count,
            )
        )(made)

    yield of_pictures


def _mean_writer(x: relax.Var, axes: Sequence[int], *, keepdims: bool) -> Write:
    """Returns a writer for a mean. For the mean over the rows and columns of a picture, ONNX has GlobalAveragePool,
    which keeps the axes.
    """

    def write(graph: Graph, var: relax.Var) -> None:
        order = graph.order_of(x)
        if len(order) != 4 or sorted(order.index(axis) for axis in axes) != [2, 3]:
            reduced(graph, var, "ReduceMean", x, axes, keepdims=keepdims)
        elif keepdims:
            graph.put(var, "GlobalAveragePool", [graph.tensor(x, order)], order)
        else:
            kept = graph.write("GlobalAveragePool", [graph.tensor(x, order)], f"{var.name}_kept")
            made = remaining_order(order, axes)
            graph.put(var, "Reshape", [kept, graph.integers([shape_of(var)[axis] for axis in made])], made)

    return write


def reduced(graph: Graph, var: relax.Var, op_type: str, x: relax.Expr, axes: Sequence[int], *, keepdims: bool) -> None:
    """Writes a reduction whose axes are an attribute."""
    order = graph.order_of(x)
    positions = tuple(sorted(order.index(axis) for axis in axes))
    made = order if keepdims else remaining_order(order, axes)
    graph.put(var, op_type, [graph.tensor(x, order)], made, axes=positions, keepdims=int(keepdims))


def remaining_order(order: Order, axes: Sequence[int]) -> Order:
    """Returns the order of the axes that remain when `axes` are removed."""
    kept = [axis for axis in range(len(order)) if axis not in axes]
    return tuple(kept.index(axis) for axis in order if axis in kept)


def _axes_near(definitions: Definitions, var: relax.Var, rank: int) -> Iterator[tuple[int, ...]]:
    """Yields the axes that a reduction may have: the last axes, and the axes of a sum near the reduction."""
    for first in range(rank - 1, -1, -1):
        yield tuple(range(first, rank))
    for arg in definitions.near(var):
        if definitions.is_call(arg, "sum"):
            yield tuple(int(axis) for axis in definitions.of(arg).attrs.axis)


def _reduced(shape: Sequence[int], axes: Sequence[int], *, keepdims: bool) -> tuple[int, ...]:
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if keepdims or axis not in axes)


def _layer_norm(definitions: Definitions, var: relax.Var) -> Composite | None:
    """Finds a layer normalization over the last axes. The normalization may have constant factors and addends of the
    shape of these axes.
    """
    if not definitions.is_near(var, "sqrt"):
        return None
    parts: list[Array | None] = []
    inner: relax.Expr = var
    for name in ("add", "multiply"):
        call = definitions.of(inner)
        data = value_of(call.args[1]) if definitions.is_call(inner, name) else None
        parts.append(data)
        inner = inner if data is None else call.args[0]
    addend, factor = parts
    if addend is not None and factor is None:
        return None
    rank = rank_of(var)
    for epsilon in definitions.numbers_near(inner):
        for first in range(rank - 1, 0, -1):
            axes, shape = range(first, rank), shape_of(var)[first:]
            if any(part is not None and part.shape != shape for part in parts):
                continue
            x = definitions.operand(inner, var.ty, partial(real.normalize, axes=axes, epsilon=epsilon))
            if x is not None:
                return Composite(x, _norm_writer(x, first, epsilon, factor, addend))
    return None


def _norm_writer(x: relax.Var, axis: int, epsilon: float, factor: Array | None, addend: Array | None) -> Write:
    def write(graph: Graph, var: relax.Var) -> None:
        ones = np.ones(shape_of(x)[axis:], np.float32)
        rows = [graph.constant(ones if factor is None else factor)]
        rows += [] if addend is None else [graph.constant(addend)]
        graph.put(var, "LayerNormalization", [graph.tensor(x), *rows], axis=axis, epsilon=epsilon)

    return write


def _l2_norm(definitions: Definitions, var: relax.Var) -> Composite | None:
    """Finds an L2 normalization over the last axis. No ONNX operator has the epsilon of this normalization, so the
    normalization is written with ReduceL2. A single operator computes the norm, because 8 bits cannot represent the
    squares.
    """
    if not definitions.is_near(var, "sqrt"):
        return None
    for epsilon in definitions.numbers_near(var):
        x = definitions.operand(var, var.ty, partial(real.l2_normalize, epsilon=epsilon))
        if x is not None:
            return Composite(x, _l2_norm_writer(x, epsilon))
    return None


def _l2_norm_writer(x: relax.Var, epsilon: float) -> Write:
    def write(graph: Graph, var: relax.Var) -> None:
        order = graph.order_of(x)
        name = graph.tensor(x, order)
        norm = graph.write("ReduceL2", [name], f"{var.name}_norm", axes=(order.index(len(order) - 1),), keepdims=1)
        least = graph.constant(np.array(epsilon, np.float32))
        graph.put(var, "Div", [name, graph.write("Max", [norm, least], f"{var.name}_divisor")], order)

    return write


def _sloped(definitions: Definitions, var: relax.Var) -> Composite | None:
    """Finds a leaky ReLU. Its slope is a scalar or a constant that broadcasts."""
    for slope in definitions.constants_near(var):
        data = value_of(slope)
        x = definitions.operand(var, var.ty, partial(real.sloped, slope=slope))
        if x is not None and data is not None:
            if data.ndim == 0:
                return Composite(x, _elementwise(x, "LeakyRelu", alpha=float(data)))
            return Composite(x, _slope_writer(x, slope))
    return None


def _slope_writer(x: relax.Var, slope: relax.Expr) -> Write:
    def write(graph: Graph, var: relax.Var) -> None:
        order = graph.order_of(x)
        graph.put(var, "PRelu", [graph.tensor(x, order), graph.aligned(slope, order)], order)

    return write


# The last Relax operator of a composite -> the composites that it may be part of, larger composites first.
_FINDERS: dict[str, Sequence[Find]] = {
    "add": (_layer_norm, pictures.interpolated),
    "astype": (
        pictures.average_pool,
        _mean,
        _with_number("Elu", "alpha", lambda alpha: real.in_float64(lambda wide: real.elu(wide, alpha))),
    ),
    "divide": (_l2_norm, _function("HardSwish", real.hard_swish), _function("Sigmoid", real.logistic), _mean),
    "maximum": (pictures.max_pool,),
    "minimum": (_clip,),
    "multiply": (_layer_norm, _softmax),
    "permute_dims": (_softmax,),
    "subtract": (_softmax,),
    "take": (pictures.nearest,),
    "where": (_sloped,),
}
