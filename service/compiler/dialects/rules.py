"""Conversions of a framework's operators to operators that dialects define."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from service.compiler.dialects.operators import Operator
from service.compiler.importers.onnx import node as onnx
from service.compiler.importers.onnx import operators as onnx_operators
from service.compiler.importers.tflite import node as tflite
from service.compiler.importers.tflite import operators as tflite_operators
from service.compiler.importers.tflite.operators.detection import custom_options
from service.compiler.importers.tflite.operators.rule import Rule
from service.compiler.importers.torch import node as torch
from service.compiler.importers.torch import operators as torch_operators
from service.compiler.importers.torch.operators import real as torch_real
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops

_STORED = frozenset({"int8", "uint8", "int16"})
_FLOAT = frozenset({"float32"})


def add_onnx(op_type: str, convert: Callable[[onnx.Node], Any], arity: tuple[int, int]) -> None:
    """Makes the ONNX importer convert operators of a type (`Softsign`, `my.domain.Softsign`) with a function. Replaces
    Octet's own conversion of the type, if there is one.
    """
    onnx_operators.RULES[op_type] = onnx_operators.Rule(convert, arity)


def add_tflite(name: str, convert: Callable[[tflite.Node], Any], arity: tuple[int, int], *, real: bool) -> None:
    """Makes the TFLite importer convert a builtin (`ABS`) or a custom operator (`CUSTOM(Softsign)`) with a function.

    Args:
        real: true if the operator takes float32 values as well as stored ones.
    """
    dtypes = _STORED | _FLOAT if real else _STORED
    rule = Rule(convert, arity, activations=None, reads=dtypes, writes=dtypes)
    tflite_operators.RULES[name] = rule


def add_torch(name: str, convert: Callable[..., Any]) -> None:
    """Makes the PyTorch importers convert calls of an operator (`aten::softsign`) with a function."""
    torch_operators.RULES[name] = convert
    torch_operators.REAL_RULES[name] = convert


def onnx_rule(operator: Operator) -> Callable[[onnx.Node], Any]:
    """Returns the conversion of an ONNX operator of float32 tensors. Attributes become parameters of the same name."""

    def convert(node: onnx.Node) -> Any:
        definition = operator.definition
        for index in range(definition.operands):
            if node.dtype(index) != "float32":
                node.unsupported(f"works on {node.dtype(index)}; {operator.name} takes float32", node.name(index))
        # ONNX has no boolean attributes.
        defaults = {name: int(each) if isinstance(each, bool) else each for name, each in definition.parameters.items()}
        named = {name: node.attribute(name, default) for name, default in defaults.items()}
        return node.emit(operator(*(node.expr(index) for index in range(definition.operands)), **named))

    return convert


def tflite_rule(operator: Operator) -> Callable[[tflite.Node], Any]:
    """Returns the conversion of a TFLite operator. If its tensors store quantized values, they are converted to real
    values and back, as the numerics mode converts them. Options of a custom operator (a FlexBuffer map) become
    parameters of the same name.
    """

    def convert(node: tflite.Node) -> relax.Expr:
        count = operator.definition.operands
        named = _custom_options(node, operator)
        if operator.definition.takes_integers:
            names = (*operator.definition.type_names, "out_type")
            tensors = (*(node.input(index) for index in range(count)), node.output)
            types = {name: node.per_tensor(tensor) for name, tensor in zip(names, tensors, strict=True)}
            return node.emit(operator(*(node.expr(index) for index in range(count)), **types, **named))
        operands = [_real_operand(node, index) for index in range(count)]
        if node.output.quantization is None:
            return node.emit(operator(*operands, **named))
        made = node.emit(operator(*operands, **named), "real")
        return node.emit(ops.quantize(made, node.per_tensor(node.output)))

    return convert


def torch_rule(operator: Operator) -> Callable[..., Value]:
    """Returns the conversion of a PyTorch operator of float32 tensors. Numbers become parameters, in order."""

    def convert(node: torch.Node, *given: Any, **named: Any) -> Value:
        count = operator.definition.operands
        names = list(operator.definition.parameters)
        numbers = dict(zip(names, given[count:], strict=False)) | {n: v for n, v in named.items() if n in names}
        parameters = {name: node.real(value) for name, value in numbers.items()}
        operands = [torch_real.operand(node, value) for value in given[:count]]
        return node.value(operator(*operands, **parameters), None)

    return convert


def _real_operand(node: tflite.Node, index: int) -> relax.Expr:
    tensor = node.input(index)
    if tensor.dtype == "float32":
        return node.expr(index)
    return node.emit(ops.dequantize(node.expr(index), node.per_tensor(tensor)), f"real_{index}")


def _custom_options(node: tflite.Node, operator: Operator) -> dict[str, float]:
    """Returns the options of a custom operator that are parameters of `operator`."""
    if not operator.definition.parameters or not node.operator.custom_options:
        return {}
    option = custom_options(node)
    return {name: option(name, float(default)) for name, default in operator.definition.parameters.items()}
