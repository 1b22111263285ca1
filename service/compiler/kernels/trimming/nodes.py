"""Walks and rewrites tensor programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad


def with_body(stmt: tirx.For, body: Any, extent: Any = None) -> tirx.For:
    """Returns the loop `stmt` with another body, and another extent if one is given."""
    return tirx.For(stmt.loop_var, stmt.min, stmt.extent if extent is None else extent, stmt.kind, body)


def loop_variables(body: Any) -> list[tirx.Var]:
    found: list[tirx.Var] = []
    walk(body, (tirx.For, lambda node: found.append(node.loop_var)))
    return found


def reads(body: Any) -> Counter[tirx.Buffer]:
    loaded: list[tirx.Buffer] = []
    walk(body, (TensorLoad, lambda node: loaded.append(node.source)))
    return Counter(loaded)


def walk(node: Any, *callbacks: tuple[type, Callable[[Any], None]]) -> None:
    """Calls each callback with the nodes of its type, in the order of execution."""
    tvm_ffi.structural_walk(node, callbacks)


def replaced(expr: tirx.PrimExpr, values: Mapping[tirx.Var, tirx.PrimExpr]) -> tirx.PrimExpr:
    """Returns `expr` with variables replaced by their `values`."""
    return tvm_ffi.structural_map(expr, (tirx.Var, lambda var: values.get(var, var)))


def intrinsic(call: Call) -> str:
    """Returns the name of the LLVM intrinsic that `call` names by its number; "" if it is another call."""
    if call.op.name not in ("tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin"):
        return ""
    number = call.args[0]
    name = tvm.target.codegen.llvm_get_intrinsic_name(int(number)) if isinstance(number, tirx.IntImm) else ""
    return str(name)
