"""Parses the complete text of a QNN graph (`printer.complete_text_of`).

The text is untrusted: every error is an `InvalidText` that names the line, sizes are limited, and type inference checks
each operator.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401 (makes NumPy accept bfloat16)
import numpy as np
import tvm
from tvm import relax
from tvm.ir import Op

from service.compiler.qnn import graph
from service.compiler.qnn.ops.call import PREFIX, call_of
from service.compiler.qnn.ops.defined import definition_of
from service.compiler.qnn.printer import ELEMENTS, type_text
from service.compiler.qnn.type_parser import parse
from service.core.errors import InvalidInput, OctetError

_DTYPES = {short: dtype for dtype, short in ELEMENTS.items()}
_NAME = r"[A-Za-z_]\w*(?:\.\w+)*"
_TYPE = re.compile(r"(?P<name>!\d+) = (?P<text>!quant\..*)")
_RESOURCE = re.compile(r'(?P<name>#\d+) = "(?P<text>[A-Za-z0-9+/=]*)"')
_PARAMETER = re.compile(r"(?P<name>%\d+): (?P<type>tensor<[^<>]*>) loc\((?P<location>\".*\")\)")
_BINDING = re.compile(r"(?P<name>%\d+) = (?P<value>.*) : (?P<type>[(]*tensor<[^\"]*>[)]*) loc\((?P<location>\".*\")\)")
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|Infinity|NaN|nan)(?![\w.]))
    | (?P<tensor>(?:const|shape)<[^<>]*>)
    | (?P<reference>[%!\#]\d+)
    | (?P<name>{_NAME})
    | (?P<sign>[(){{}}\[\],=])
    )""",
    re.VERBOSE,
)
_MOST_ELEMENTS = 1 << 31
_MOST_DIMENSIONS = 64
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None}
_DEEPEST = 16


class InvalidText(InvalidInput):
    """The text of a QNN graph is malformed, or an operator in it is invalid."""

    code = "invalid_text"


def parse_module(text: str) -> tvm.IRModule:
    """Returns the module whose complete text is `text`.

    Raises:
        InvalidText: the text is malformed, names an unknown operator, or states a type other than the inferred one.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    lines = [(number, line) for number, line in lines if not line.startswith("//")]
    position = next((index for index, (_, line) in enumerate(lines) if line == "main"), None)
    if position is None:
        raise InvalidText("line 1: the text has no line `main`")
    end = next((index for index, (_, line) in enumerate(lines) if line.startswith("return ")), None)
    if end is None or end < position:
        raise InvalidText(f"line {lines[-1][0]}: the graph has no line `return`")
    parser = _Parser()
    for number, line in lines[:position]:
        parser.define_type(number, line)
    for number, line in lines[end + 1 :]:
        parser.define_resource(number, line)
    return parser.module(lines[position + 1 : end], *lines[end])


def _error(number: int, message: str) -> InvalidText:
    return InvalidText(f"line {number}: {message}")


class _Parser:
    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self._resources: dict[str, bytes] = {}
        self._constants: dict[tuple[str, tuple[int, ...], str], relax.Constant] = {}
        self._vars: dict[str, relax.Expr] = {}

    def define_type(self, number: int, line: str) -> None:
        found = _TYPE.fullmatch(line)
        if found is None:
            raise _error(number, "expected a type `!N = !quant.uniform<…>`")
        try:
            parse(found["text"])
        except OctetError as error:
            raise _error(number, error.message) from error
        self._types[found["name"]] = found["text"]

    def define_resource(self, number: int, line: str) -> None:
        found = _RESOURCE.fullmatch(line)
        if found is None:
            raise _error(number, 'expected the values of a constant `#N = "…"`')
        try:
            self._resources[found["name"]] = base64.b64decode(found["text"], validate=True)
        except binascii.Error as error:
            raise _error(number, f"the values are not base64: {error}") from error

    def module(self, lines: list[tuple[int, str]], last: int, returned: str) -> tvm.IRModule:
        names = [name.strip() for name in returned.removeprefix("return ").split(",")]
        is_tuple = names[-1] == ""
        results = names[:-1] if is_tuple else names
        if len(results) != 1 and not is_tuple:
            raise _error(last, "several results end with a comma")
        params = []
        while lines and (found := _PARAMETER.fullmatch(lines[0][1])):
            params.append(self._parameter(lines.pop(0)[0], found))
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                for number, line in lines:
                    self._bind(builder, number, line, results)
                if unknown := [name for name in results if name not in self._vars]:
                    raise _error(last, f"{unknown[0]} is not defined")
                found_results = [self._vars[name] for name in results]
            builder.emit_func_output(relax.Tuple(found_results) if is_tuple else found_results[0])
        return builder.get()

    def _parameter(self, number: int, found: re.Match[str]) -> relax.Var:
        shape, dtype = _tensor(number, found["type"])
        var = relax.Var(_location(number, found), relax.TensorType(shape, dtype))
        self._vars[found["name"]] = var
        return var

    def _bind(self, builder: relax.BlockBuilder, number: int, line: str, results: list[str]) -> None:
        found = _BINDING.fullmatch(line)
        if found is None:
            raise _error(number, 'expected an operation `%N = name(…) {…} : tensor<…> loc("…")`')
        if found["name"] in self._vars:
            raise _error(number, f"{found['name']} is defined twice")
        value, location = _Value(number, found["value"], self).expression(), _location(number, found)
        try:
            emit = builder.emit_output if found["name"] in results else builder.emit
            var = emit(graph.typed(builder, value), location)
        except (OctetError, tvm.error.InternalError, ValueError, TypeError) as error:
            raise _error(number, str(error).splitlines()[0]) from error
        if type_text(var.ty) != found["type"]:
            raise _error(number, f"the type is {type_text(var.ty)}, not {found['type']}")
        self._vars[found["name"]] = var

    def variable(self, number: int, name: str) -> relax.Expr:
        if name not in self._vars:
            raise _error(number, f"{name} is not defined")
        return self._vars[name]

    def type(self, number: int, name: str) -> str:
        if name not in self._types:
            raise _error(number, f"the type {name} is not defined")
        return self._types[name]

    def constant(self, number: int, name: str, shape: list[int], dtype: str) -> relax.Constant:
        """Returns a constant that is printed after the graph. Equal uses share one."""
        key = (name, tuple(shape), dtype)
        if key not in self._constants:
            data, size = self._resources.get(name), math.prod(shape) * np.dtype(dtype).itemsize
            if data is None:
                raise _error(number, f"the constant {name} is not defined")
            if len(data) != size:
                raise _error(number, f"{name} has {len(data)} bytes, not {size}")
            self._constants[key] = relax.const(np.frombuffer(data, dtype).reshape(shape), dtype)
        return self._constants[key]


class _Value:
    """The right side of one line."""

    def __init__(self, number: int, text: str, parser: _Parser) -> None:
        self._number, self._parser = number, parser
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise _error(number, f"unexpected {text[position:].strip()[:20]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._next = 0

    def expression(self) -> relax.Expr:
        """Returns the operator, or the operand that is renamed."""
        value = self._call(self._take()) if self._kind() == "name" else self._operand()
        if self._next < len(self._tokens):
            raise _error(self._number, f"unexpected {self._peek()!r}")
        return value

    def _call(self, name: str) -> relax.Call:
        kind = PREFIX + name.removeprefix("qnn.") if name.startswith("qnn.") else f"relax.{name}"
        exists = kind in _OPERATORS or definition_of(name) is not None
        if not exists or (name not in _PLAIN and not name.startswith("qnn.")):
            raise _error(self._number, f"the operator {name} does not exist")
        self._expect("(")
        args = [self._operand() for _ in self._items(")")]
        attributes: dict[str, Any] = {}
        if self._accept("{"):
            for _ in self._items("}"):
                key = self._take("name")
                self._expect("=")
                attributes[key] = self._attribute(0)
        if name.startswith("qnn."):
            return call_of(name.removeprefix("qnn."), args, **attributes)
        if len(args) != Op.get(kind).num_inputs and name not in _OPTIONAL:
            raise _error(self._number, f"{name} has {Op.get(kind).num_inputs} operands, not {len(args)}")
        if not (made_of := _PLAIN[name]):
            if attributes:
                raise _error(self._number, f"{name} has no attributes")
            return relax.Call(Op.get(kind), args)
        try:
            return relax.Call(Op.get(kind), args, tvm.ir.make_node(f"relax.attrs.{made_of}Attrs", **attributes))
        except (TypeError, ValueError, AttributeError, tvm.error.InternalError) as error:
            raise _error(self._number, f"{name} has other attributes: {str(error).splitlines()[0]}") from error

    def _operand(self, depth: int = 0) -> relax.Expr:
        if depth > _DEEPEST:
            raise _error(self._number, "a tuple is nested too deeply")
        kind, token = self._kind(), self._take()
        if token == "(":
            return relax.Tuple([self._operand(depth + 1) for _ in self._items(")")])
        if kind == "number":
            return tvm.tirx.IntImm("int64", self._integer(token))
        if kind == "tensor" and token.startswith("shape<"):
            return relax.ShapeExpr(_dimensions(self._number, token[len("shape<") : -1]))
        if kind == "tensor":
            return self._constant(token)
        if kind != "reference" or not token.startswith("%"):
            raise _error(self._number, f"{token!r} is not an operand")
        value = self._parser.variable(self._number, token)
        if self._accept("["):
            value = relax.TupleGetItem(value, self._integer(self._take("number")))
            self._expect("]")
        return value

    def _constant(self, token: str) -> relax.Expr:
        shape, dtype = _tensor(self._number, "tensor" + token.removeprefix("const"))
        count = math.prod(shape)
        if self._kind() == "reference":
            return self._parser.constant(self._number, self._take(), shape, dtype)
        self._expect("[")
        listed = [self._attribute(_DEEPEST) for _ in self._items("]")]
        try:
            values = np.array(listed, dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise _error(self._number, f"a value does not fit {dtype}") from error
        if len(listed) != count:
            raise _error(self._number, f"{token} has {len(listed)} values, not {count}")
        return relax.const(values.reshape(shape), dtype)

    def _attribute(self, depth: int) -> Any:
        kind, token = self._kind(), self._take()
        if token == "[":
            if depth >= _DEEPEST:
                raise _error(self._number, "a list is nested too deeply")
            return [self._attribute(depth + 1) for _ in self._items("]")]
        if kind == "string":
            return _string(self._number, token)
        if kind == "number":
            return int(token) if re.fullmatch(r"-?\d+", token) else float(token)
        if kind == "reference" and token.startswith("!"):
            return self._parser.type(self._number, token)
        if token in _WORDS:
            return _WORDS[token]
        raise _error(self._number, f"{token!r} is not the value of an attribute")

    def _integer(self, token: str) -> int:
        if not re.fullmatch(r"-?\d{1,18}", token):
            raise _error(self._number, f"{token!r} is not an integer of 64 bits")
        return int(token)

    def _kind(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else "the end of the line"

    def _take(self, kind: str = "") -> str:
        found = self._kind()
        if not found or (kind and kind != found):
            raise _error(self._number, f"expected a {kind or 'value'}, not {self._peek()!r}")
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _accept(self, sign: str) -> bool:
        found = self._tokens[self._next : self._next + 1] == [("sign", sign)]
        self._next += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise _error(self._number, f"expected {sign!r}, not {self._peek()!r}")

    def _items(self, end: str) -> Iterator[None]:
        """Yields before each item of a list. Commas separate items, and `end` ends the list."""
        while not self._accept(end):
            yield
            if not self._accept(","):
                self._expect(end)
                return


_OPERATORS = frozenset(str(name) for name in Op.list_op_names())
_WITHOUT_ATTRIBUTES = (
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "broadcast_to", "ceil", "cos", "cosh", "divide"),
    *("equal", "erf", "exp", "floor", "floor_divide", "floor_mod", "greater", "greater_equal", "isfinite", "isinf"),
    *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
    *("isnan", "less", "less_equal", "log", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum"),
    *(
        "minimum",
        "mod",
        "multiply",
        "negative",
        "nn.relu",
        "not_equal",
        "power",
        "reshape",
        "round",
        "rsqrt",
        "sigmoid",
    ),
    *("sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "tril", "triu", "where"),
)
_STATISTICAL, _ARGUMENT = "Statistical", "ArgmaxArgmin"
# Operators of Relax that a graph may contain, and the type of their attributes ("" for none). TVM crashes on attributes
# of another type.
_PLAIN = {
    **dict.fromkeys(_WITHOUT_ATTRIBUTES, ""),
    **dict.fromkeys(("max", "mean", "min", "prod", "sum"), _STATISTICAL),
    "argmax": _ARGUMENT,
    "argmin": _ARGUMENT,
    "astype": "Astype",
    "concat": "Concat",
    "flip": "Flip",
    "gather_elements": "GatherElements",
    "matmul": "Matmul",
    "nn.pad": "Pad",
    "permute_dims": "PermuteDims",
    "strided_slice": "StridedSlice",
    "take": "Take",
    "tile": "Tile",
}
_OPTIONAL = ("strided_slice",)  # operators with operands that TVM does not count


def _location(number: int, found: re.Match[str]) -> str:
    return _string(number, found["location"])


def _string(number: int, token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError as error:
        raise _error(number, f"{token[:20]} is not a string") from error


def _tensor(number: int, text: str) -> tuple[list[int], str]:
    """Returns the shape and the dtype of `tensor<1x2xi8>`."""
    *dims, short = text.removeprefix("tensor<").removesuffix(">").split("x")
    if short not in _DTYPES:
        raise _error(number, f"{short!r} is not the type of an element")
    return _dimensions(number, "x".join(dims)), _DTYPES[short]


def _dimensions(number: int, text: str) -> list[int]:
    dims = text.split("x") if text else []
    if len(dims) > _MOST_DIMENSIONS or not all(re.fullmatch(r"\d{1,10}", dim) for dim in dims):
        raise _error(number, f"{text[:40]!r} is not a shape")
    sizes = [int(dim) for dim in dims]
    if math.prod(sizes) > _MOST_ELEMENTS:
        raise _error(number, f"a tensor of shape {text} is too large")
    return sizes
