"""Normalize types: writes each quantized type in its simplest form (MLIR's `normalize-quant-types`).

A type in blocks becomes per tensor if it has one block, and per axis if its blocks are the single indices of one
dimension. Dimensions with one block are not listed. Operators read types in this form anyway
(`Operation.quantized`), so the pass only changes texts. Later passes compare these texts.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change; equal types have equal texts.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.type_parser import parse_normalized

_TYPE = "!quant."


def normalize_types(module: tvm.IRModule, _mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with normalized types, and the names of the tensors whose operators had other types."""
    names: list[str] = []
    for var, value, operation in graph.operations(graph.main_of(module)):
        if operation is not None and _changes(value):
            names.append(str(var.name))

    def normalize(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if operation is None:
            return graph.with_args(call, args)
        return ops.with_operands(call, *args, **_changes(call))

    return (graph.rewrite(module, normalize) if names else module), names


def _changes(call: relax.Call) -> dict[str, Any]:
    """Returns the attributes of a QNN operator whose types are not normalized, with normalized types."""
    changes: dict[str, Any] = {}
    for name, value in () if call.attrs is None else call.attrs.items():
        texts = [value] if isinstance(value, str) else list(value) if name == "in_types" else []
        normal = [str(parse_normalized(str(text))) if str(text).startswith(_TYPE) else str(text) for text in texts]
        if normal != [str(text) for text in texts]:
            changes[str(name)] = normal[0] if isinstance(value, str) else normal
    return changes
