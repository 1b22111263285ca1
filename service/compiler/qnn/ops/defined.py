"""Operators that dialects define (`compiler.dialects`), each by a formula of its elements.

An operator that is defined by a formula of real values has two forms. The real form takes float32 values. The stored
form takes one tensor of stored values, usually the accumulators of a layer, and applies `dequantize`, the formula and
`quantize`. An operator that is defined by a formula of integers takes and returns stored values.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax
from tvm.ir import Op, register_op_attr

from service.compiler.qnn.expressions.formula import InvalidFormula
from service.compiler.qnn.expressions.tracing import Expression, by_channel, trace
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import PREFIX, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

Parameter = float | int | bool
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}\.[a-z][a-z0-9_]{0,62}")
_OPERAND_TYPES = {1: ("in_type",), 2: ("lhs_type", "rhs_type")}
_STORAGES = ("int8", "uint8", "int16")
_ACCUMULATORS = ("int32",)
_TYPES = frozenset({"in_type", "lhs_type", "rhs_type", "out_type"})
_LEVEL = 10  # TVM's lowest level of an operator's attribute; an operator that is defined again gets a higher one


@dataclass(frozen=True)
class Definition:
    """An operator that a dialect defines.

    Attributes:
        name: the name with the dialect: `mine.softsign`.
        formula: the function of the elements: real values, or stored integers followed by the types.
        operands: the number of tensors that it takes.
        parameters: the attributes of a call besides its types, with their defaults.
        takes_integers: true if the formula computes with stored integers.
        check: called with the types of the operands and the result (by name); raises `ValueError` if they do not fit
            together.
        summary: the formula in one line.
        onnx: the ONNX operator that is imported as this operator, and as which quantization writes it; "" for none.
    """

    name: str
    formula: Callable[..., Any]
    operands: int
    parameters: Mapping[str, Parameter]
    takes_integers: bool
    check: Callable[..., None] | None = None
    summary: str = ""
    onnx: str = ""
    _expressions: dict[str, Expression] = field(default_factory=dict, compare=False)

    @property
    def type_names(self) -> tuple[str, ...]:
        """The attributes with the types of the operands; () if the operands are real values."""
        return _OPERAND_TYPES[self.operands] if self.takes_integers else ()

    def expression(self, operation: Operation) -> Expression:
        """Returns the formula for the attributes of a call.

        Raises:
            InvalidFormula: the formula does something that cannot be expressed.
        """
        given = {name: operation.attr(name) for name in self.parameters}
        types = {name: operation.per_tensor(name) for name in (*self.type_names, "out_type") if self.takes_integers}
        return operation.once("expression", lambda: self.traced(given, types))

    def channel_expression(self, operation: Operation) -> tuple[Expression, tuple[Array, ...]]:
        """Returns the formula of integers for a call, and the values of its operands after the first ones: an array
        with one value for each channel of the accumulators, if they have a scale for each channel.

        Raises:
            InvalidFormula: the formula does something that cannot be expressed, or differs by more than constants.
        """
        in_types = channel_types(operation.quantized(self.type_names[0]))
        if len(in_types) == 1:
            return self.expression(operation), ()
        given, out_type = {name: operation.attr(name) for name in self.parameters}, operation.per_tensor("out_type")

        def merged() -> tuple[Expression, tuple[Array, ...]]:
            return by_channel([self.traced(given, {"in_type": each, "out_type": out_type}) for each in in_types])

        return operation.once("channel_expression", merged)

    def traced(self, parameters: Mapping[str, Any], types: Mapping[str, QuantizedType]) -> Expression:
        """Returns the formula for these parameters and types. Raises `InvalidFormula`."""
        named = {name: type(default)(parameters.get(name, default)) for name, default in self.parameters.items()}
        key = repr((sorted(named.items()), sorted((name, str(each)) for name, each in types.items())))
        if key not in self._expressions:
            dtype = "int32" if self.takes_integers else "float32"
            self._expressions[key] = self._trace(named, types, dtype)
        return self._expressions[key]

    def _trace(self, named: Mapping[str, Any], types: Mapping[str, QuantizedType], dtype: str) -> Expression:
        ordered = [types[name] for name in (*self.type_names, "out_type") if self.takes_integers]
        try:
            return trace(
                lambda *values: self.formula(*values, *ordered, **named), [dtype] * self.operands, result=dtype
            )
        except InvalidFormula as error:
            raise InvalidFormula(f"{self.name}: {error.message}", op=self.name) from error
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise InvalidFormula(f"{self.name}: the formula failed: {what}", op=self.name) from error


# The defined operators by name, without the prefix `qnn.`.
DEFINED: dict[str, Definition] = {}


def channel_types(quantized: QuantizedType) -> tuple[QuantizedType, ...]:
    """Returns the per-tensor type of each channel of a type."""
    pairs = zip(quantized.scales, quantized.zero_points, strict=True)
    return tuple(replace(quantized, scales=(scale,), zero_points=(point,), axis=None) for scale, point in pairs)


def definition_of(name: str) -> Definition | None:
    """Returns the definition of the operator that is called `name` or `qnn.name`, or None."""
    return DEFINED.get(name.removeprefix("relax.").removeprefix("qnn."))


def is_real(operation: Operation) -> bool:
    """True if the operation is the real form of a defined operator."""
    return definition_of(operation.name) is not None and not _given_types(operation)


def converts(operation: Operation) -> bool:
    """True if the operation takes stored values or accumulators of one tensor, and returns stored values: it may be
    computed together with the layer before it, unless its formula is too long.
    """
    found = definition_of(operation.name)
    if found is None or found.operands != 1 or not _given_types(operation):
        return False
    expression = found.channel_expression(operation)[0] if found.takes_integers else found.expression(operation)
    return not expression.is_long


def operand_types(operation: Operation) -> tuple[str, ...]:
    """Returns the attributes with the types of the operands of a defined operator; () if they are real values."""
    found = definition_of(operation.name)
    if found is None or found.takes_integers:
        return found.type_names if found is not None else ()
    return ("in_type",) if _given_types(operation) else ()


def define(definition: Definition) -> None:
    """Makes an operator known to type inference, the printer, the parser and every pass. A second definition of a name
    replaces the first.

    Raises:
        InvalidFormula: the name or the formula is invalid.
    """
    if _NAME.fullmatch(definition.name) is None:
        raise InvalidFormula(
            f"{definition.name!r} is not a name of an operator: write it in lower-case letters, digits and underscores"
        )
    if definition.takes_integers and definition.operands not in _OPERAND_TYPES:
        raise InvalidFormula(f"{definition.name}: a formula of integers takes 1 or 2 operands", op=definition.name)
    if not definition.takes_integers:
        definition.traced({}, {})
    if definition.name not in DEFINED:
        register_op_attr(PREFIX + definition.name, "FInferType", lambda call, _: _type_of(Operation(call)), _LEVEL)
        register_op_attr(PREFIX + definition.name, "FPurity", True, _LEVEL)
        Op.get(PREFIX + definition.name).set_num_inputs(-1)
    DEFINED[definition.name] = definition


def real_form(definition: Definition, *operands: relax.Expr, **parameters: Parameter) -> relax.Call:
    """Applies a formula of real values to float32 tensors, which broadcast as in NumPy."""
    return call_of(definition.name, operands, **_completed(definition, parameters))


def stored_form(
    definition: Definition, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, **parameters: Parameter
) -> relax.Call:
    """Returns quantize(formula(dequantize(x))), same shape.

    Args:
        in_type: 8 or 16 bits per tensor; or int32, per tensor or with a scale for each channel of the last axis.
        out_type: 8 or 16 bits, per tensor.
    """
    return call_of(definition.name, [x], in_type=in_type, out_type=out_type, **_completed(definition, parameters))


def integer_form(
    definition: Definition, *operands: relax.Expr, types: Mapping[str, QuantizedType], **parameters: Parameter
) -> relax.Call:
    """Applies a formula of integers to stored values, which broadcast as in NumPy. `types` are the types by name."""
    return call_of(definition.name, operands, **types, **_completed(definition, parameters))


def parameters_of(formula: Callable[..., Any]) -> tuple[int, dict[str, Parameter]]:
    """Returns the number of positional parameters of a function, and its keyword-only parameters with their defaults.

    Raises:
        InvalidFormula: the function has other parameters, or a default that is not a number.
    """
    positional, named = 0, {}
    for parameter in inspect.signature(formula).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            if not isinstance(parameter.default, bool | int | float):
                raise InvalidFormula(f"the parameter {parameter.name} of a formula needs a number as its default")
            named[parameter.name] = parameter.default
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional += 1
        else:
            raise InvalidFormula("a formula cannot take a variable number of parameters")
    if set(named) & _TYPES:
        raise InvalidFormula(f"{sorted(set(named) & _TYPES)[0]} is not a name for a parameter: it names a type")
    return positional, named


def _completed(definition: Definition, given: Mapping[str, Parameter]) -> dict[str, Parameter]:
    unknown = set(given) - set(definition.parameters)
    if unknown:
        raise InvalidFormula(f"{definition.name} has no parameter {sorted(unknown)[0]}", op=definition.name)
    return {name: type(default)(given.get(name, default)) for name, default in definition.parameters.items()}


def _given_types(operation: Operation) -> frozenset[str]:
    return _TYPES & frozenset(() if operation.call.attrs is None else operation.call.attrs.keys())


def _type_of(o: Operation) -> relax.TensorType:
    definition = definition_of(o.name)
    assert definition is not None
    o.count(definition.operands)
    _check_parameters(o, definition)
    if definition.takes_integers:
        return _integer_type(o, definition)
    if not _given_types(o):
        tensors = [o.tensor(index) for index in range(definition.operands)]
        o.require(all(dtype == "float32" for _, dtype in tensors), "the operands must be float32")
        return tensor_type(_broadcast(o, [shape for shape, _ in tensors]), "float32")
    o.require(definition.operands == 1, "an operator of several tensors has no stored form")
    in_type, out_type = o.quantized("in_type"), o.per_tensor("out_type")
    o.require(in_type.storage in (*_STORAGES, *_ACCUMULATORS), f"cannot read {in_type.storage}")
    o.require(out_type.storage in _STORAGES, f"cannot store {out_type.storage}")
    _check_types(o, definition, {"in_type": in_type, "out_type": out_type})
    return tensor_type(o.stored(0, in_type), out_type.dtype)


def _integer_type(o: Operation, definition: Definition) -> relax.TensorType:
    types = {name: o.quantized(name) for name in (*definition.type_names, "out_type")}
    for name, each in types.items():
        is_allowed = each.storage in _STORAGES or (name == "in_type" and each.storage in _ACCUMULATORS)
        o.require(is_allowed, f"{name} is stored as {each.storage}, not in 8 or 16 bits")
        last = len(o.tensor(0)[0]) - 1
        fits = each.is_per_tensor or (each.storage in _ACCUMULATORS and each.axis == last)
        o.require(fits, f"{name} has several scales: accumulators may have one for each channel of the last axis")
    shapes = [o.stored(index, types[name]) for index, name in enumerate(definition.type_names)]
    for each in channel_types(types[definition.type_names[0]]):
        _check_types(o, definition, {**types, definition.type_names[0]: each})
    return tensor_type(_broadcast(o, shapes), types["out_type"].dtype)


def _check_parameters(o: Operation, definition: Definition) -> None:
    given = set(() if o.call.attrs is None else o.call.attrs.keys()) - _TYPES
    o.require(given == set(definition.parameters), f"takes the attributes {sorted(definition.parameters)}")
    for name, default in definition.parameters.items():
        value = o.attr(name)
        fits = isinstance(value, int | float) and math.isfinite(value) and type(default)(value) == value
        o.require(fits, f"{name} must be a number of type {type(default).__name__}, not {value}")


def _check_types(o: Operation, definition: Definition, types: Mapping[str, QuantizedType]) -> None:
    if definition.check is None:
        return
    try:
        definition.check(**types)
    except ValueError as error:
        o.fail(str(error))


def _broadcast(o: Operation, shapes: list[tuple[int, ...]]) -> list[int]:
    rank = max(map(len, shapes))
    sizes = [{1, *each} - {1} for each in zip(*((*[1] * (rank - len(shape)), *shape) for shape in shapes), strict=True)]
    o.require(all(len(each) < 2 for each in sizes), f"{shapes} do not broadcast")
    return [next(iter(each), 1) for each in sizes]
