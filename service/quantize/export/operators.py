"""Converts operators of Relax to operators of ONNX. `OPERATORS` has an entry for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.file import encoding
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.operation import value_of
from service.compiler.qnn.ops.defined import Definition, definition_of
from service.core.errors import Unsupported
from service.quantize.export.composites import reduced, remaining_order
from service.quantize.export.graph import CHANNELS_FIRST, Graph, Order, identity, rank_of

# A function that writes the call that computes a variable.
Write = Callable[[Graph, relax.Var, relax.Call], None]


def elementwise(op_type: str) -> Write:
    """Returns a writer for an elementwise operator. The operands broadcast as in NumPy."""

    def write(graph: Graph, var: relax.Var, call: relax.Call) -> None:
        order = _broadcast(graph, rank_of(var), call.args)
        graph.put(var, op_type, [graph.aligned(each, order) for each in call.args], order)

    return write


def _broadcast(graph: Graph, rank: int, operands: Sequence[relax.Expr]) -> Order:
    """Returns the common order of axes for operands of at most `rank` axes."""
    whole = [each for each in operands if value_of(each) is None and rank_of(each) == rank]
    return graph.order_of(*whole) if whole else identity(rank)


def _maximum(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    """Writes a lower bound as Relu, or as Clip with one bound. After a convolution, the bound becomes part of the
    result's range.
    """
    _bounded(graph, var, call, "Max", lambda bound: ("Relu", ()) if bound == 0 else ("Clip", (bound,)))


def _minimum(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    _bounded(graph, var, call, "Min", lambda bound: ("Clip", (None, bound)))


def _bounded(
    graph: Graph,
    var: relax.Var,
    call: relax.Call,
    op_type: str,
    of: Callable[[float], tuple[str, tuple[float | None, ...]]],
) -> None:
    x, bound = call.args[0], value_of(call.args[1])
    if bound is None or bound.size != 1 or str(var.ty.dtype) != "float32" or shape_of(x) != shape_of(var):
        elementwise(op_type)(graph, var, call)
        return
    order, (op_type, bounds) = graph.order_of(x), of(float(bound.reshape(())))
    given = ["" if each is None else graph.constant(np.array(each, np.float32)) for each in bounds]
    graph.put(var, op_type, [graph.tensor(x, order), *given], order)


def _not_equal(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    order = _broadcast(graph, rank_of(var), call.args)
    equal = graph.write("Equal", [graph.aligned(each, order) for each in call.args], f"{var.name}_equal")
    graph.put(var, "Not", [equal], order)


def _astype(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    """Writes a cast. A cast to float64 is written as one to float32."""
    names = [_dtype(each) for each in (call.args[0], var)]
    if names[0] == names[1]:
        graph.alias(var, call.args[0])
        return
    order = graph.order_of(call.args[0])
    graph.put(var, "Cast", [graph.tensor(call.args[0], order)], order, to=encoding.DTYPES[names[1]])


def _dtype(expr: relax.Expr) -> str:
    return str(expr.ty.dtype).replace("float64", "float32")


# -- sums of products


def _conv2d(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    """Writes a convolution of `[N, H, W, C]` by `[O, KH, KW, C / groups]`, which are the layouts of the QNN dialect."""
    x, weights, *bias = call.args
    factors = _factors(graph, call, [graph.tensor(x, CHANNELS_FIRST), graph.tensor(weights, CHANNELS_FIRST)])
    names = [*factors, *map(graph.tensor, bias)]
    strides, padding, dilation = (_integers(call, name) for name in ("strides", "padding", "dilation"))
    graph.put(
        var,
        "Conv",
        names,
        CHANNELS_FIRST,
        kernel_shape=shape_of(weights)[1:3],
        strides=strides,
        pads=padding,
        dilations=dilation,
        group=int(call.attrs["groups"]),
    )


def _matmul(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    lhs, rhs, *bias = call.args
    names = _factors(graph, call, [graph.tensor(lhs), graph.tensor(rhs)])
    if not bias:
        graph.put(var, "MatMul", names)
    elif rank_of(lhs) == rank_of(rhs) == 2:
        graph.put(var, "Gemm", [*names, graph.tensor(bias[0])])
    else:
        graph.put(var, "Add", [graph.write("MatMul", names, f"{var.name}_products"), graph.tensor(bias[0])])


def _factors(graph: Graph, call: relax.Call, names: list[str]) -> list[str]:
    """Returns the operands of a product. If the call rounds its operands to bfloat16, the returned operands are
    rounded.
    """
    if getattr(call.op, "name", "") == "relax.matmul" or str(call.attrs["operand_dtype"]) == "float32":
        return names
    number = encoding.DTYPES[str(call.attrs["operand_dtype"])]
    narrow = [graph.write("Cast", [name], f"{name}_rounded", to=number) for name in names]
    return [graph.write("Cast", [name], f"{name}_real", to=encoding.DTYPES["float32"]) for name in narrow]


def _fma(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    order = _broadcast(graph, rank_of(var), call.args)
    a, b, c = (graph.aligned(each, order) for each in call.args)
    graph.put(var, "Add", [graph.write("Mul", [a, b], f"{var.name}_product"), c], order)


# -- reductions


def _reduced(op_type: str, of: Callable[[relax.Call], tuple[Sequence[int], bool]]) -> Write:
    def write(graph: Graph, var: relax.Var, call: relax.Call) -> None:
        axes, keepdims = of(call)
        reduced(graph, var, op_type, call.args[0], axes, keepdims=keepdims)

    return write


def _sum(of: Callable[[relax.Call], tuple[Sequence[int], bool]]) -> Write:
    """Returns a writer for a sum. The axes of ReduceSum are an operand."""

    def write(graph: Graph, var: relax.Var, call: relax.Call) -> None:
        (axes, keepdims), x = of(call), call.args[0]
        order = graph.order_of(x)
        positions = graph.integers(sorted(order.index(axis) for axis in axes))
        made = order if keepdims else remaining_order(order, axes)
        graph.put(var, "ReduceSum", [graph.tensor(x, order), positions], made, keepdims=int(keepdims))

    return write


def _axes_of(call: relax.Call) -> tuple[Sequence[int], bool]:
    axes = range(rank_of(call.args[0])) if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]
    return axes, bool(call.attrs.keepdims)


def _last(call: relax.Call) -> tuple[Sequence[int], bool]:
    return [rank_of(call.args[0]) - 1], True


def _place(op_type: str) -> Write:
    def write(graph: Graph, var: relax.Var, call: relax.Call) -> None:
        x, axis, keepdims = call.args[0], int(call.attrs.axis), bool(call.attrs.keepdims)
        order = graph.order_of(x)
        made = order if keepdims else remaining_order(order, [axis])
        graph.put(var, op_type, [graph.tensor(x, order)], made, axis=order.index(axis), keepdims=int(keepdims))

    return write


# -- movement


def _permute(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    axes = call.attrs.axes
    graph.alias(var, call.args[0], [int(axis) for axis in axes] if axes else identity(rank_of(var))[::-1])


def _reshape(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    graph.put(var, "Reshape", [graph.flat(call.args[0]), graph.integers(shape_of(var))])


def _expand(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    graph.put(var, "Expand", [graph.tensor(call.args[0]), graph.integers(shape_of(var))])


def _concat(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    parts = call.args[0].fields
    order = graph.order_of(*parts)
    names = [graph.tensor(part, order) for part in parts]
    graph.put(var, "Concat", names, order, axis=order.index(int(call.attrs.axis)))


def _pad(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    x, widths = call.args[0], _numbers(call.attrs.pad_width)
    order = graph.order_of(x)
    sides = [widths[2 * axis + end] for end in (0, 1) for axis in order]
    fill = graph.constant(np.array(float(call.attrs.pad_value), _dtype(x)))
    graph.put(var, "Pad", [graph.tensor(x, order), graph.integers(sides), fill], order)


def _slice(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    x = call.args[0]
    axes, *bounds = (_numbers(field.value for field in arg.fields) for arg in call.args[1:])
    order = graph.order_of(x)
    begin, end, strides = bounds if len(bounds) == 3 else (*bounds, [1] * len(axes))
    operands = (begin, end, [order.index(axis) for axis in axes], strides)
    graph.put(var, "Slice", [graph.tensor(x, order), *map(graph.integers, operands)], order)


def _take(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    """Writes a Gather. With indices of one dimension, the order of the axes stays the same."""
    x, positions = call.args
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    order = graph.order_of(x) if rank_of(positions) == 1 else identity(rank_of(x))
    made = order if rank_of(positions) == 1 else None
    graph.put(var, "Gather", [graph.tensor(x, order), graph.tensor(positions)], made, axis=order.index(axis))


def _gather(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    graph.put(var, "GatherElements", [*map(graph.tensor, call.args)], axis=int(call.attrs.axis))


def _tile(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    x, repeats = call.args[0], _numbers(call.attrs.repeats)
    times = [1] * (rank_of(var) - len(repeats)) + repeats
    order = graph.order_of(x) if rank_of(x) == rank_of(var) else identity(rank_of(var))
    graph.put(var, "Tile", [graph.aligned(x, order), graph.integers([times[axis] for axis in order])], order)


def _integers(call: relax.Call, name: str) -> tuple[int, ...]:
    return tuple(_numbers(call.attrs[name]))


def _numbers(values: object) -> list[int]:
    return [int(each) for each in values]  # type: ignore[attr-defined]


_ELEMENTWISE = (
    *("abs", "acos", "add", "asin", "atan", "ceil", "cos", "cosh", "equal", "erf", "exp", "floor", "greater", "less"),
    *("log", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "where"),
)
_RENAMED = {
    "divide": "Div",
    "floor_mod": "Mod",
    "greater_equal": "GreaterOrEqual",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "less_equal": "LessOrEqual",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "multiply": "Mul",
    "negative": "Neg",
    "nn.relu": "Relu",
    "power": "Pow",
    "subtract": "Sub",
    "qnn.real_erf": "Erf",
    "qnn.real_exp": "Exp",
    "qnn.real_logistic": "Sigmoid",
    "qnn.real_tanh": "Tanh",
}
OPERATORS: Mapping[str, Write] = {
    **{name: elementwise(name.capitalize()) for name in _ELEMENTWISE},
    **{name: elementwise(op_type) for name, op_type in _RENAMED.items()},
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "astype": _astype,
    "broadcast_to": _expand,
    "concat": _concat,
    "gather_elements": _gather,
    "matmul": _matmul,
    "max": _reduced("ReduceMax", _axes_of),
    "maximum": _maximum,
    "min": _reduced("ReduceMin", _axes_of),
    "minimum": _minimum,
    "nn.pad": _pad,
    "not_equal": _not_equal,
    "permute_dims": _permute,
    "prod": _reduced("ReduceProd", _axes_of),
    "qnn.real_conv2d": _conv2d,
    "qnn.real_fma": _fma,
    "qnn.real_matmul": _matmul,
    "qnn.real_mean": _reduced("ReduceMean", _last),
    "qnn.real_squares": _reduced("ReduceSumSquare", _last),
    "qnn.real_sum": _sum(lambda call: (_integers(call, "axes"), True)),
    "reshape": _reshape,
    "strided_slice": _slice,
    "sum": _sum(_axes_of),
    "take": _take,
    "tile": _tile,
}


def _defined(graph: Graph, var: relax.Var, call: relax.Call, definition: Definition) -> None:
    """Writes an operator of a dialect as the ONNX operator that is imported as it."""
    order = _broadcast(graph, rank_of(var), call.args)
    numbers = {name: call.attrs[name] for name in definition.parameters}
    given = {name: int(value) if isinstance(value, bool) else value for name, value in numbers.items()}
    graph.put(var, definition.onnx, [graph.aligned(each, order) for each in call.args], order, **given)


def write(graph: Graph, var: relax.Var, call: relax.Call) -> None:
    """Writes the call that computes `var`.

    Raises:
        Unsupported: ONNX has no equivalent of the operator.
    """
    name = str(getattr(call.op, "name", call.op)).removeprefix("relax.")
    definition = definition_of(name)
    if definition is not None and definition.onnx:
        _defined(graph, var, call, definition)
        return
    if name not in OPERATORS:
        raise Unsupported(
            f"{name} cannot be written as ONNX, the format in which models are quantized",
            op=name,
            tensor=str(var.name),
            hint="quantize the model with its framework's tools (docs/how-to), or remove this operator from it",
        )
    OPERATORS[name](graph, var, call)
