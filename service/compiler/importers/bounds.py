"""Finds the values that a model's inputs are meant to have: the range of a quantization, the size of an indexed table,
or 0 and 1 for a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.operation import Operation, value_of
from service.core.models.signature import Bounds, ModelSignature, TensorSpec

# Operators whose result consists of unchanged elements of their first operand.
_MOVES = frozenset(
    f"relax.{name}"
    for name in ("astype", "broadcast_to", "expand_dims", "permute_dims", "reshape", "squeeze", "strided_slice", "tile")
)
_TRUTH = Bounds(0, 1)
Values = Mapping[relax.Var, relax.Expr]
Found = tuple[relax.Var, Bounds]


def bounded(signature: ModelSignature, module: tvm.IRModule) -> ModelSignature:
    """Returns `signature` with bounds for each input of `module` whose bounds can be found."""
    function = graph.main_of(module)
    values = dict(graph.bindings(function))
    indices, others = [], []
    for _, value, operation in graph.operations(function):
        if isinstance(value, relax.Call):
            indices += list(_index(value, values))
            others += [*_calibrated(value, operation, values), *_mask(value, values)]
    # Bounds of indices take precedence. If an index is used for several tables, the smallest table counts.
    found: dict[relax.Var, Bounds] = {}
    for var, bounds in sorted(indices, key=lambda each: each[1].high) + others:
        found.setdefault(var, bounds)
    inputs = (_with(spec, found.get(var)) for spec, var in zip(signature.inputs, function.params, strict=False))
    return replace(signature, inputs=tuple(inputs))


def _with(spec: TensorSpec, bounds: Bounds | None) -> TensorSpec:
    return spec if bounds is None else replace(spec, bounds=bounds)


def _index(call: relax.Call, values: Values) -> Iterator[Found]:
    """If `call` reads parts of a table at an index, yields the bounds of the index: 0 and the table's size minus
    one.
    """
    if _name(call) == "relax.take":
        source, size = _source(call.args[1], values), graph.shape_of(call.args[0])[int(call.attrs.axis)]
        if source is not None and size:
            yield source, Bounds(0, size - 1)


def _calibrated(call: relax.Call, operation: Operation | None, values: Values) -> Iterator[Found]:
    """If `call` quantizes real values, yields the range that its quantized type represents."""
    if operation is not None and operation.name == "qnn.quantize":
        steps, factor, addend = _scaled(call.args[0], values)
        source, out_type = _source(steps, values), operation.quantized("out_type")
        if source is not None and out_type.is_per_tensor:
            ends = (out_type.scale * (end - out_type.zero_point) for end in (out_type.min, out_type.max))
            low, high = sorted((end - addend) / factor for end in ends)
            yield source, Bounds(low, high)


def _scaled(expr: relax.Expr, values: Values) -> tuple[relax.Expr, float, float]:
    """If `expr` is a value times a number plus a number, returns the value and both numbers. Otherwise, returns `expr`,
    1 and 0.
    """
    total = values.get(expr)
    if not isinstance(total, relax.Call) or _name(total) != "relax.add":
        return expr, 1.0, 0.0
    product, addend = values.get(total.args[0]), value_of(total.args[1])
    if not isinstance(product, relax.Call) or _name(product) != "relax.multiply" or addend is None:
        return expr, 1.0, 0.0
    factor = value_of(product.args[1])
    if factor is None or factor.size != 1 or addend.size != 1 or float(factor) == 0:
        return expr, 1.0, 0.0
    return product.args[0], float(factor), float(addend)


def _mask(call: relax.Call, values: Values) -> Iterator[Found]:
    """If `call` compares an integer with 0, or subtracts it from one, yields the bounds of a mask."""
    source = None
    match _name(call), list(call.args):
        case "relax.equal" | "relax.not_equal", [operand, other] | [other, operand] if _is_all(other, 0):
            source = _source(operand, values)
        case "relax.subtract", [one, operand] if _is_all(one, 1):
            source = _source(operand, values)
        case "relax.astype", [operand] if str(call.attrs.dtype) == "bool":
            source = _source(operand, values)
    if source is not None and "int" in str(source.ty.dtype):
        yield source, _TRUTH


def _source(expr: relax.Expr, values: Values) -> relax.Var | None:
    """Returns the input that has the same elements as `expr`. Code that converts an index from the end to an index from
    the front is ignored.
    """
    while (value := values.get(expr)) is not None:
        if isinstance(value, relax.Call) and _name(value) in _MOVES:
            expr = value.args[0]
        elif isinstance(value, relax.Call) and _name(value) == "relax.where":
            expr = value.args[2]
        else:
            return None
    return expr if isinstance(expr, relax.Var) else None


def _is_all(expr: relax.Expr, number: int) -> bool:
    value = value_of(expr)
    return value is not None and bool((value == number).all())


def _name(call: relax.Call) -> str:
    return str(getattr(call.op, "name", ""))
