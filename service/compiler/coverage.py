"""The integer-coverage report: how many multiply-accumulates run in integer arithmetic, and why the others do not."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics.bfloat16 import is_bfloat16
from service.compiler.qnn.operation import Operation

# Part of the name of a value inside of one operator of the model, which is reported by its result.
INSIDE = "_inside"

# The reason that stands for all operators of a model in which nothing is quantized.
FLOAT = "float, not quantized"

# Plain operators that compute nothing.
MOVEMENT = ("relax.concat", "relax.nn.pad", "relax.permute_dims", "relax.reshape", "relax.strided_slice")


def report(module: tvm.IRModule) -> dict[str, Any]:
    """For a model of QNN operators: MACs in all and in integers, and every operator that computes in float; a single
    entry for all of them, with their number, if nothing in the model is quantized."""
    total = integer = 0
    stored = False
    floating: list[dict[str, Any]] = []
    for var, value, operation in graph.operations(graph.main_of(module)):
        inside = f"_{INSIDE}" in var.name
        if operation is None:
            if _computes_in_float(value) and (not inside or _products(value)):
                macs = _products(value)
                total += macs
                floating.append({"op": var.name, "macs": macs, "reason": "the model has it between real values"})
            continue
        stored |= any(name == "type" or name.endswith("_type") for name, _ in operation.call.attrs.items())
        macs = _macs(operation)
        total += macs
        if operation.name.startswith("qnn.real_"):
            if inside and not macs:
                continue
            floating.append({"op": var.name, "macs": macs, "reason": _reason(operation)})
        elif macs and str(operation.attr("accum_dtype")) == "float32":
            floating.append({"op": var.name, "macs": macs, "reason": "its accumulators are float32"})
        else:
            integer += macs
        if operation.name == "qnn.detect":
            reason = "boxes are decoded, and overlaps compared, as real values"
            floating.append({"op": var.name, "macs": 0, "reason": reason})
        if operation.name in ("qnn.quantize", "qnn.dequantize"):
            reason = "the model's own boundary between real and quantized values"
            floating.append({"op": var.name, "macs": 0, "reason": reason, "boundary": True})
    if floating and not stored and not integer:
        floating = [{"op": "the model", "operators": len(floating), "macs": total, "reason": FLOAT}]
    percent = 100.0 if total == 0 else 100.0 * integer / total
    return {"macs": total, "integer_macs": integer, "integer_percent": percent, "floating": floating}


def _reason(operation: Operation) -> str:
    rounded = operation.name in ("qnn.real_conv2d", "qnn.real_matmul") and is_bfloat16(operation)
    return "the model multiplies bfloat16 values" if rounded else "the model has it between real values"


def _computes_in_float(value: relax.Expr) -> bool:
    """Whether a plain operator makes other real values than it is given. Those in float64 are inside of one operator
    of the model, which ends by rounding them to float32; of these, only sums of products count."""
    name = value.op.name if isinstance(value, relax.Call) and hasattr(value.op, "name") else ""
    inside = str(value.ty.dtype) == "float64" and not _products(value)
    return name not in ("", *MOVEMENT) and str(value.ty.dtype).startswith("float") and not inside


def _products(value: relax.Expr) -> int:
    """The multiply-accumulates of a plain operator."""
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.matmul":
        return 0
    return math.prod(graph.shape_of(value)) * graph.shape_of(value.args[0])[-1]


def macs_by_operator(function: relax.Function) -> dict[relax.Var, int]:
    """The multiply-accumulates of each QNN operator, those with padding included."""
    return {var: _macs(operation) for var, _, operation in graph.operations(function) if operation is not None}


def _macs(operation: Operation) -> int:
    if operation.name in ("qnn.matmul", "qnn.real_matmul", "qnn.block_matmul"):
        return math.prod(graph.shape_of(operation.call)) * graph.shape_of(operation.call.args[0])[-1]
    if operation.name not in ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.real_conv2d"):
        return 0
    filters = graph.shape_of(operation.call.args[1])
    if operation.name == "qnn.conv2d_transpose":  # every element of the input meets every tap
        return math.prod(graph.shape_of(operation.call.args[0])) * math.prod(filters[:-1])
    return math.prod(graph.shape_of(operation.call)) * math.prod(filters[1:])
