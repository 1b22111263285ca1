"""Prints a model's QNN graph in the style of MLIR: one operator per line, each with its quantized types.

!0 = !quant.uniform<u8:f32, 0.0078125:128>
main
  %0: tensor<1x224x224x3xu8>  // image
  %1 = qnn.conv2d(%0, const<32x3x3x3xi8>) {in_type = !0, …} : tensor<1x112x112x32xi32>  // stem
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.types import SHORT
from service.core.printable import printable

_TYPE = "!quant."


def text_of(module: tvm.IRModule) -> str:
    """Returns the graph of `module` as text. Constants show only their types; equal types share a name."""
    return _Printer(graph.main_of(module)).text()


class _Printer:
    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self._types: dict[str, str] = {}
        self._numbers: dict[relax.Var, str] = {}

    def text(self) -> str:
        head = [
            f"  {self._define(param)}: {_tensor(param.ty)}  // {printable(param.name)}"
            for param in self.function.params
        ]
        body = [
            f"  {self._define(var)} = {self._value(value)} : {_tensor(var.ty)}  // {printable(var.name)}"
            for var, value in graph.bindings(self.function)
        ]
        results = ", ".join(map(self._operand, graph.results_of(self.function)))
        types = [f"{name} = {text}" for text, name in self._types.items()]
        return "\n".join([*types, "main", *head, *body, f"  return {results}", ""])

    def _define(self, var: relax.Var) -> str:
        return self._numbers.setdefault(var, f"%{len(self._numbers)}")

    def _value(self, value: relax.Expr) -> str:
        if not isinstance(value, relax.Call):
            return self._operand(value)
        name = str(getattr(value.op, "name", value.op)).removeprefix("relax.")
        # Attributes keep the order in which they were given.
        attributes = ", ".join(f"{key} = {self._attribute(given)}" for key, given in _attributes(value.attrs))
        return f"{name}({', '.join(map(self._operand, value.args))})" + (f" {{{attributes}}}" if attributes else "")

    def _attribute(self, value: Any) -> str:
        if isinstance(value, str):
            return (
                self._types.setdefault(value, f"!{len(self._types)}") if value.startswith(_TYPE) else printable(value)
            )
        if hasattr(value, "__iter__"):
            return f"[{', '.join(map(self._attribute, value))}]"
        return str(value)

    def _operand(self, expr: relax.Expr) -> str:
        if isinstance(expr, relax.Var):
            return self._numbers[expr]
        if isinstance(expr, relax.Tuple):
            return f"({', '.join(map(self._operand, expr.fields))})"
        if isinstance(expr, tvm.ir.GenericConst):
            return f"const<{_tensor(expr.ty).removeprefix('tensor<')}"
        return str(expr)


def _attributes(attrs: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of an operator. A QNN operator has a dictionary, and a plain one (`relax.permute_dims`) an
    object with fields.
    """
    if attrs is None:
        return []
    if hasattr(attrs, "keys"):
        return [(key, attrs[key]) for key in attrs.keys()]  # noqa: SIM118 (DictAttrs has no `in`)
    fields = type(attrs).__tvm_ffi_type_info__.fields
    return [(field.name, getattr(attrs, field.name)) for field in fields]


def _tensor(type_: Any) -> str:
    if isinstance(type_, relax.TensorType):
        dims = "".join(f"{getattr(dim, 'value', '?')}x" for dim in type_.shape)
        return f"tensor<{dims}{SHORT.get(str(type_.dtype), str(type_.dtype))}>"
    fields = getattr(type_, "fields", None)
    return str(type_) if fields is None else f"({', '.join(map(_tensor, fields))})"
