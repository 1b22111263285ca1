"""The integer-coverage report: how many multiply-accumulates run in integer arithmetic, and why the others do not."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.lookup import bits_of
from service.compiler.qnn.numerics.sums.bfloat16 import is_bfloat16
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.defined import is_real
from service.core.artifacts.floating import FLOAT

# This part of a name marks a value inside an operator of the model. The report names the operator's result instead.
INSIDE = "_inside"

_REAL = "the model has it between real values"

_LARGEST_WEIGHT = 2  # bytes
_DEQUANTIZING = ("relax.astype", "relax.multiply", "relax.subtract", "relax.where", "relax.take", "relax.reshape")

# Plain operators that compute nothing.
MOVEMENT = ("relax.concat", "relax.flip", "relax.nn.pad", "relax.permute_dims", "relax.reshape", "relax.strided_slice")


def report(module: tvm.IRModule, tables: Collection[str] = ()) -> dict[str, Any]:
    """Returns a report on a model of QNN operators: its multiply-accumulates in total and in integers, and every
    operator that computes in float. If nothing in the model is quantized, one entry gives the number of its operators.
    If only its weights are, `computes` says so, with their bits: "weights of 4 bits, computes in float32".

    Args:
        tables: names of the results that are read from tables (`qnn.passes.tables`). Operators that only compute such
            results do not run, in float or in integers.
    """
    main = graph.main_of(module)
    unused = _computed_by(main, tables)
    total = integer = 0
    stored = quantizes = False
    floating: list[dict[str, Any]] = []
    weights: dict[relax.Var, int] = {}  # dequantized constant -> the bits of its stored values
    rows: dict[relax.Var, int] = {}  # rows of a stored table, or a step of their dequantization -> the table's bits
    read: set[int] = set()  # the bits of weights that operators on real values read
    for var, value, operation in graph.operations(main):
        if var in unused:
            continue
        inside = f"_{INSIDE}" in var.name
        if operation is None:
            moved = [weights[arg] for arg in graph.variables(value) if arg in weights] if _is_movement(value) else []
            if moved:
                weights[var] = moved[0]
            if (bits := _looked_up(value, weights, rows)) is not None:
                read.add(bits)
                if inside or not str(var.ty.dtype).startswith("float"):
                    rows[var] = bits
                else:
                    floating.append({"op": var.name, "macs": 0, "reason": _rows_of(bits)})
            elif _computes_in_float(value) and (not inside or _products(value)):
                macs = _products(value)
                total += macs
                floating.append({"op": var.name, "macs": macs, "reason": _REAL})
            continue
        stored |= operation.name == "qnn.block_matmul"
        stored |= any(name == "type" or name.endswith("_type") for name, _ in operation.call.attrs.items())
        macs = _macs(operation)
        total += macs
        if operation.name.startswith("qnn.real_") or is_real(operation):
            if inside and not macs:
                continue
            floating.append({"op": var.name, "macs": macs, "reason": _reason(operation, weights)})
            read |= _weight_bits(operation, weights)
        elif macs and str(operation.attr("accum_dtype")) == "float32":
            floating.append({"op": var.name, "macs": macs, "reason": _reason(operation, weights)})
            read |= _weight_bits(operation, weights)
        else:
            integer += macs
        if operation.name in ("qnn.detect", "qnn.suppress"):
            reason = "boxes and their overlaps are compared as real values"
            floating.append({"op": var.name, "macs": 0, "reason": reason})
        if operation.name == "qnn.dequantize" and isinstance(operation.call.args[0], tvm.ir.GenericConst):
            weights[var] = operation.quantized("in_type").bits
            continue
        if operation.name == "qnn.dequantize" and operation.call.args[0] in rows:
            floating.append({"op": var.name, "macs": 0, "reason": _rows_of(rows[operation.call.args[0]])})
            continue
        quantizes |= operation.name == "qnn.quantize"
        if operation.name in ("qnn.quantize", "qnn.dequantize"):
            reason = "the model's own boundary between real and quantized values"
            floating.append({"op": var.name, "macs": 0, "reason": reason, "boundary": True})
    if floating and not (stored or integer or read) and all(each["reason"] == _REAL for each in floating):
        floating = [{"op": "the model", "operators": len(floating), "macs": total, "reason": FLOAT}]
    percent = 100.0 if total == 0 else 100.0 * integer / total
    covered = {"macs": total, "integer_macs": integer, "integer_percent": percent, "floating": floating}
    return covered if integer or quantizes or not read else {**covered, "computes": _class(read)}


def _class(bits: Collection[int]) -> str:
    """Returns the class of a model whose weights alone are quantized."""
    return f"weights of {' and '.join(str(each) for each in sorted(bits))} bits, computes in float32"


def _rows_of(bits: int) -> str:
    return f"the model reads rows of weights of {bits} bits"


def _looked_up(value: relax.Expr, weights: Mapping[relax.Var, int], rows: Mapping[relax.Var, int]) -> int | None:
    """Returns the bits of a stored table if `value` reads rows of it, or is a step of their dequantization."""
    if not isinstance(value, relax.Call):
        return None
    name = getattr(value.op, "name", "")
    if name == "relax.take":
        if value.args[0] in weights:
            return weights[value.args[0]]
        table = value_of(value.args[0])
        if table is not None and table.dtype.kind in "iu" and table.itemsize <= _LARGEST_WEIGHT and table.ndim > 1:
            return bits_of(table)
    if name in _DEQUANTIZING:
        return next((rows[arg] for arg in graph.variables(value) if arg in rows), None)
    return None


def _weight_bits(operation: Operation, weights: Mapping[relax.Var, int]) -> set[int]:
    """Returns the bits of a product's stored weights, if it multiplies real values."""
    if not _macs(operation):
        return set()
    if operation.name == "qnn.block_matmul":
        return {operation.integer("bits")}
    return {weights[arg] for arg in operation.call.args[1:2] if arg in weights}


def _reason(operation: Operation, weights: Mapping[relax.Var, int]) -> str:
    if operation.name == "qnn.block_matmul":
        return f"the model multiplies real values by weights of {operation.integer('bits')} bits"
    if operation.name in ("qnn.real_conv2d", "qnn.real_matmul") and is_bfloat16(operation):
        return "the model multiplies bfloat16 values"
    stored = [weights[arg] for arg in operation.call.args[1:2] if arg in weights]
    if stored and _macs(operation):
        return f"the model multiplies real values by weights of {stored[0]} bits"
    return "its sums are float32" if _macs(operation) and not operation.name.startswith("qnn.real_") else _REAL


def _computed_by(main: relax.Function, tables: Collection[str]) -> set[relax.Var]:
    """Returns the results that tables replace: those named in `tables`, and results that only the replaced results
    use.
    """
    if not tables:
        return set()
    found: set[relax.Var] = set()
    read = set(graph.results_of(main))  # variables that are read by operators that no table replaces
    for var, value in reversed([*graph.bindings(main)]):
        if str(var.name) in tables or var not in read:
            found.add(var)
        else:
            read |= set(graph.variables(value))
    return found


def _is_movement(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in MOVEMENT


def _computes_in_float(value: relax.Expr) -> bool:
    """Returns true if an operator without a type of quantization computes new real values.

    The importer writes some operators of a model as several steps in float64, whose result is rounded to float32. Of
    these steps, only sums of products give true, so that such an operator is counted once.
    """
    name = value.op.name if isinstance(value, relax.Call) and hasattr(value.op, "name") else ""
    inside = str(value.ty.dtype) == "float64" and not _products(value)
    return name not in ("", *MOVEMENT) and str(value.ty.dtype).startswith("float") and not inside


def _products(value: relax.Expr) -> int:
    """Returns the multiply-accumulates of a plain operator."""
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.matmul":
        return 0
    return math.prod(graph.shape_of(value)) * graph.shape_of(value.args[0])[-1]


def macs_by_operator(function: relax.Function) -> dict[relax.Var, int]:
    """Returns the multiply-accumulates of each QNN operator, including those with padding."""
    return {var: _macs(operation) for var, _, operation in graph.operations(function) if operation is not None}


def _macs(operation: Operation) -> int:
    if operation.name in ("qnn.matmul", "qnn.real_matmul", "qnn.block_matmul"):
        return math.prod(graph.shape_of(operation.call)) * graph.shape_of(operation.call.args[0])[-1]
    if operation.name not in ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.real_conv2d"):
        return 0
    filters = graph.shape_of(operation.call.args[1])
    if operation.name == "qnn.conv2d_transpose":  # every element of the input is multiplied by every kernel tap
        return math.prod(graph.shape_of(operation.call.args[0])) * math.prod(filters[:-1])
    return math.prod(graph.shape_of(operation.call)) * math.prod(filters[1:])
