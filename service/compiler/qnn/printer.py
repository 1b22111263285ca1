"""Prints a model's QNN graph in the style of MLIR: one operator per line, each with its quantized types.

!0 = !quant.uniform<u8:f32, 0.0078125:128>
main
  %0: tensor<1x224x224x3xu8>  // image
  %1 = qnn.conv2d(%0, const<32x3x3x3xi8>) {in_type = !0, …} : tensor<1x112x112x32xi32>  // stem

The complete form, which `qnn.parser` reads, also contains the values of constants and unchanged names:

  %1 = qnn.conv2d(%0, const<32x3x3x3xi8> #0, const<2xi32> [3, -4]) {in_type = !0, …} : tensor<…> loc("stem")
  …
#0 = "base64 of the little-endian values"
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.core.printable import printable

HEAD = "// qnn 1"  # the first line of the complete form, with its version
MOST_IN_LINE = 16  # constants with more elements are printed after the graph
_TYPE = "!quant."
_BITS = (8, 16, 32, 64)
# dtype of a tensor -> name of its elements
ELEMENTS = {
    **{f"int{bits}": f"i{bits}" for bits in _BITS},
    **{f"uint{bits}": f"u{bits}" for bits in _BITS},
    **{f"float{bits}": f"f{bits}" for bits in _BITS[1:]},
    "bfloat16": "bf16",
    "bool": "bool",
}


def text_of(module: tvm.IRModule) -> str:
    """Returns the graph of `module` as text. Constants show only their types; equal types share a name."""
    return _Printer(graph.main_of(module)).text()


def complete_text_of(module: tvm.IRModule) -> str:
    """Returns the graph of `module` in the form that `qnn.parser.parse_module` reads."""
    return f"{HEAD}\n{_CompletePrinter(graph.main_of(module)).text()}"


class _Printer:
    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self._types: dict[str, str] = {}
        self._numbers: dict[relax.Var, str] = {}

    def text(self) -> str:
        head = [
            f"  {self._define(param)}: {type_text(param.ty)}{self._location(param)}" for param in self.function.params
        ]
        body = [
            f"  {self._define(var)} = {self._value(value)} : {type_text(var.ty)}{self._location(var)}"
            for var, value in graph.bindings(self.function)
        ]
        types = [f"{name} = {text}" for text, name in self._types.items()]
        return "\n".join([*types, "main", *head, *body, f"  return {self._results()}", *self._resources(), ""])

    def _results(self) -> str:
        return ", ".join(map(self._operand, graph.results_of(self.function)))

    def _location(self, var: relax.Var) -> str:
        return f"  // {printable(var.name)}"

    def _resources(self) -> list[str]:
        return []

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
                self._types.setdefault(value, f"!{len(self._types)}")
                if value.startswith(_TYPE)
                else self._string(value)
            )
        if hasattr(value, "__iter__"):
            return f"[{', '.join(map(self._attribute, value))}]"
        return str(value)

    def _string(self, value: str) -> str:
        return printable(value)

    def _operand(self, expr: relax.Expr) -> str:
        if isinstance(expr, relax.Var):
            return self._numbers[expr]
        if isinstance(expr, relax.Tuple):
            return f"({', '.join(map(self._operand, expr.fields))})"
        if isinstance(expr, relax.TupleGetItem):
            return f"{self._operand(expr.tuple_value)}[{expr.index}]"
        if isinstance(expr, tvm.ir.GenericConst):
            return f"const<{type_text(expr.ty).removeprefix('tensor<')}"
        return str(expr)


class _CompletePrinter(_Printer):
    def __init__(self, function: relax.Function) -> None:
        super().__init__(function)
        self._constants: dict[bytes, str] = {}  # equal values are printed once

    def _results(self) -> str:
        return super()._results() + ("," if isinstance(self.function.body.body, relax.Tuple) else "")

    def _location(self, var: relax.Var) -> str:
        return f" loc({json.dumps(var.name)})"

    def _string(self, value: str) -> str:
        return json.dumps(value)

    def _attribute(self, value: Any) -> str:
        if isinstance(value, tvm.DataType):  # such as the attribute of `astype`
            return json.dumps(str(value))
        return super()._attribute(value)

    def _operand(self, expr: relax.Expr) -> str:
        if isinstance(expr, tvm.tirx.IntImm):
            return str(int(expr))
        if isinstance(expr, relax.ShapeExpr):
            return f"shape<{'x'.join(str(int(dim)) for dim in expr.values)}>"
        if isinstance(expr, tvm.ir.GenericConst):
            return f"{super()._operand(expr)} {self._values(expr)}"
        return super()._operand(expr)

    def _values(self, constant: Any) -> str:
        values = constant.value.numpy()
        if values.size <= MOST_IN_LINE:
            shown = values.astype(np.float32) if str(values.dtype) == "bfloat16" else values
            return json.dumps(shown.reshape(-1).tolist())
        data = np.ascontiguousarray(values).tobytes()
        return self._constants.setdefault(data, f"#{len(self._constants)}")

    def _resources(self) -> list[str]:
        return [f'{name} = "{base64.b64encode(data).decode()}"' for data, name in self._constants.items()]


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


def type_text(type_: Any) -> str:
    """Returns the text of a tensor's type, or of a tuple of types."""
    if isinstance(type_, relax.TensorType):
        dims = "".join(f"{getattr(dim, 'value', '?')}x" for dim in type_.shape)
        return f"tensor<{dims}{ELEMENTS.get(str(type_.dtype), str(type_.dtype))}>"
    fields = getattr(type_, "fields", None)
    return str(type_) if fields is None else f"({', '.join(map(type_text, fields))})"
