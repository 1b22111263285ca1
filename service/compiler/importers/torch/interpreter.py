"""Evaluates TorchScript. Values that are known during the import are computed; operators on tensors are passed to
`Operators`.

The code is a tree of Python's syntax. The interpreter supports only the statements and expressions that PyTorch's
printer writes (torch/csrc/jit/serialization/python_print.cpp), and never lets Python execute the code. Shapes are
known, so every condition and every loop can be evaluated. Calls of submodules are evaluated too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from service.compiler.importers.torch import scalars
from service.compiler.importers.torch.code import Code
from service.compiler.importers.torch.packed import CLASSES, Packed, unpacked
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.unpickler import Object
from service.compiler.importers.torch.values import UNKNOWN, Instance, Unknown
from service.core.errors import MalformedModel, Unsupported

_MOST_STEPS = 1 << 20
_DEEPEST_CALLS = 100
_OWN = "__torch__."


class Operators(Protocol):
    """The operators that compute tensors."""

    def call(self, name: str, output: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Returns the result of the operator `name`, such as `quantized::conv2d`. `output` is the variable to which the
        code assigns it.
        """


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Interpreter:
    """Runs functions of an archive's code.

    Args:
        constants: the values of `CONSTANTS.c0`, `CONSTANTS.c1` … in the code.
    """

    def __init__(self, code: Code, constants: Sequence[Any], operators: Operators) -> None:
        self._code, self._constants, self._operators = code, constants, operators
        self._instances: dict[int, Any] = {}
        self._steps = self._depth = 0

    def call_method(self, instance: Instance, name: str, arguments: Sequence[Any]) -> Any:
        """Returns `instance.name(*arguments)`.

        Raises:
            MalformedModel: PyTorch does not write such code, or the code does not fit the model.
            Unsupported: the code uses features that Octet does not evaluate.
        """
        methods = self._code.methods(instance.kind)
        if methods is None or name not in methods:
            raise MalformedModel(f"the class {_quoted(instance.kind)} of the archive has no method {_quoted(name)}")
        return self._call(methods[name], [instance, *arguments], {})

    def instance(self, value: Any) -> Any:
        """Returns an object of a pickle in the form that the code uses. Other values are returned unchanged."""
        if not isinstance(value, Object):
            return value
        key = id(value)  # objects of a pickle live longer than the interpreter, so their ids are unique
        if key not in self._instances:
            self._instances[key] = (value, self._instantiated(value, str(value.kind)))
        return self._instances[key][1]

    def _instantiated(self, value: Object, kind: str) -> Any:
        if value.kind.module.startswith(CLASSES):
            return unpacked(value.kind.module, value.kind.name, value.state)
        instance = Instance(kind)
        methods = self._code.methods(kind) or {}
        if "__setstate__" in methods:
            self._call(methods["__setstate__"], [instance, value.state], {})
        elif isinstance(value.state, dict):
            instance.attributes = dict(value.state)
        elif value.state is not None:
            raise MalformedModel(f"an object of the class {_quoted(kind)} has a state, but its class cannot read it")
        return instance

    # -- calls

    def _call(self, function: ast.FunctionDef, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST_CALLS:
            raise MalformedModel("functions of the archive's code call each other endlessly")
        try:
            self._block(function.body, bound(function, arguments, named, self._literal))
        except _Returned as returned:
            return returned.value
        finally:
            self._depth -= 1
        return None

    def _literal(self, node: ast.expr) -> Any:
        return self._value(node, {}, "")

    # -- statements

    def _block(self, statements: Sequence[ast.stmt], scope: dict[str, Any]) -> None:
        for statement in statements:
            self._count_step()
            handler = _STATEMENTS.get(type(statement))
            if handler is None:
                raise self._refusal(statement)
            handler(self, statement, scope)

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise MalformedModel("the archive's code runs too long")

    def _assign(self, statement: ast.Assign, scope: dict[str, Any]) -> None:
        if len(statement.targets) != 1:
            raise self._refusal(statement)
        (target,) = statement.targets
        name = target.id if isinstance(target, ast.Name) else ""
        self._store(target, self._value(statement.value, scope, name), scope)

    def _annotated(self, statement: ast.AnnAssign, scope: dict[str, Any]) -> None:
        if statement.value is not None:
            self._store(statement.target, self._value(statement.value, scope, ""), scope)

    def _store(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Tuple):
            parts = [UNKNOWN] * len(target.elts) if isinstance(value, Unknown) else value
            if not isinstance(parts, tuple | list) or len(parts) != len(target.elts):
                raise MalformedModel("the archive's code unpacks a value that has another number of parts")
            for part, element in zip(parts, target.elts, strict=True):
                self._store(element, part, scope)
        elif isinstance(target, ast.Attribute):
            owner = self._value(target.value, scope, "")
            if not isinstance(owner, Instance):
                raise self._refusal(target)
            owner.attributes[target.attr] = value
        else:
            raise self._refusal(target)

    def _expression(self, statement: ast.Expr, scope: dict[str, Any]) -> None:
        self._value(statement.value, scope, "")

    def _if(self, statement: ast.If, scope: dict[str, Any]) -> None:
        self._block(statement.body if self._condition(statement.test, scope) else statement.orelse, scope)

    def _for(self, statement: ast.For, scope: dict[str, Any]) -> None:
        match statement.iter:
            case ast.Call(func=ast.Name(id="range"), args=[count]):
                for index in range(self._integer(count, scope)):
                    self._store(statement.target, index, scope)
                    self._block(statement.body, scope)
                    self._count_step()
            case _:
                raise self._refusal(statement)

    def _while(self, statement: ast.While, scope: dict[str, Any]) -> None:
        while self._condition(statement.test, scope):
            self._block(statement.body, scope)
            self._count_step()

    def _return(self, statement: ast.Return, scope: dict[str, Any]) -> NoReturn:
        raise _Returned(None if statement.value is None else self._value(statement.value, scope, "output"))

    def _pass(self, _: ast.Pass, scope: dict[str, Any]) -> None:
        pass

    def _condition(self, node: ast.expr, scope: dict[str, Any]) -> bool:
        value = self._value(node, scope, "")
        if not isinstance(value, bool | int | float | str | list | tuple | type(None)):
            raise Unsupported(
                f"line {node.lineno} of the model's code branches on the values of a tensor",
                hint="trace the model, or script it without control flow on data",
            )
        return bool(value)

    def _integer(self, node: ast.expr, scope: dict[str, Any]) -> int:
        value = self._value(node, scope, "")
        if type(value) is not int:
            raise Unsupported(
                f"line {node.lineno} of the model's code has a loop whose number of iterations is not known"
            )
        return value

    # -- expressions

    def _value(self, node: ast.expr, scope: dict[str, Any], output: str) -> Any:
        """Returns the value of `node`. `output` is the variable to which the value is assigned; errors name this
        variable.
        """
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node.value
            case ast.Name(id=name) if name in scope:
                return scope[name]
            case ast.Name(id=name) if name in scalars.LITERALS:
                return scalars.LITERALS[name]
            case ast.Tuple(elts=elements):
                return tuple(self._value(element, scope, output) for element in elements)
            case ast.List(elts=elements):
                return [self._value(element, scope, output) for element in elements]
            case ast.Dict(keys=[], values=[]):
                return {}
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {
                    self._key(key, scope): self._value(v, scope, output) for key, v in zip(keys, values, strict=True)
                }
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return scalars.FUNCTIONS["aten::neg"](self._value(operand, scope, ""))
            case ast.Subscript(value=whole, slice=index):
                return scalars.item(self._value(whole, scope, ""), self._value(index, scope, ""))
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Call():
                return self._called(node, scope, output)
            case _:
                raise self._refusal(node)

    def _key(self, node: ast.expr | None, scope: dict[str, Any]) -> str:
        match node:
            case ast.Constant(value=str(key)):
                return key
            case _:
                raise self._refusal(node)

    def _attribute(self, node: ast.Attribute, scope: dict[str, Any]) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "CONSTANTS":
            number = node.attr.removeprefix("c")
            if not number.isdecimal() or int(number) >= len(self._constants):
                raise MalformedModel(f"the archive has no constant {_quoted(node.attr)}")
            return self.instance(self._constants[int(number)])
        if (path := _path(node)) and path.startswith(_OWN):
            function = self._code.function(path)
            if function is None:
                raise MalformedModel(f"the archive's code names {_quoted(path)}, but does not define it")
            return function
        return self._member(self._value(node.value, scope, ""), node.attr)

    def _member(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Unknown):
            return UNKNOWN
        if not isinstance(owner, Instance):
            raise Unsupported(f"the model's code reads the attribute {_quoted(name)} of a value that is not a module")
        if name not in owner.attributes:
            raise MalformedModel(
                f"the archive's code reads the attribute {_quoted(name)}, but the value has no such attribute"
            )
        return self.instance(owner.attributes[name])

    def _called(self, node: ast.Call, scope: dict[str, Any], output: str) -> Any:
        match node.func:
            case ast.Name(id="annotate" | "unchecked_cast", ctx=_) if len(node.args) == 2:
                return self._value(node.args[1], scope, output)
            case ast.Name(id="uninitialized"):
                return UNKNOWN
        arguments = [self._value(argument, scope, output) for argument in node.args]
        named = {str(pair.arg): self._value(pair.value, scope, output) for pair in node.keywords}
        match node.func:
            case ast.Name(id="getattr") if len(arguments) == 2 and isinstance(arguments[1], str):
                return self._member(*arguments)
            case ast.Name(id=name) if name not in scope and f"prim::{name}" in scalars.FUNCTIONS:
                return scalars.FUNCTIONS[f"prim::{name}"](*arguments)
            case ast.Name(id=name) if isinstance(function := scope.get(name), ast.FunctionDef):
                return self._call(function, arguments, named)
            case ast.Attribute(attr=attribute, value=owner):
                path = _path(node.func)
                if path.startswith(_OWN):
                    return self._call(self._attribute(node.func, scope), arguments, named)
                if (called := _operator(path)) and path.split(".")[0] not in scope:
                    return self._operation(called, output, arguments, named)
                return self._method(self._value(owner, scope, ""), attribute, arguments, named)
            case _:
                raise self._refusal(node)

    def _method(self, owner: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        if isinstance(owner, Unknown):
            return UNKNOWN
        if isinstance(owner, Packed) and name == "unpack":
            return owner.weight, None if owner.bias is None else Tensor(owner.bias)
        if not isinstance(owner, Instance):
            raise Unsupported(f"the model's code calls the method {_quoted(name)} of a value that is not a module")
        methods = self._code.methods(owner.kind) or {}
        if name not in methods:
            raise MalformedModel(f"the class {_quoted(owner.kind)} of the archive has no method {_quoted(name)}")
        return self._call(methods[name], [owner, *arguments], named)

    def _operation(self, name: str, output: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        function = scalars.FUNCTIONS.get(name)
        given = [*arguments, *named.values()]
        if function is not None and scalars.are_scalars(given):
            return function(*arguments, **named)
        if function is not None and any(isinstance(each, Unknown) for each in given):
            return UNKNOWN
        return self._operators.call(name, output, arguments, named)

    def _refusal(self, node: ast.AST | None) -> Unsupported:
        line = getattr(node, "lineno", "?")
        return Unsupported(
            f"line {line} of the model's code has a {type(node).__name__}, which Octet does not evaluate",
            hint="trace the model (torch.jit.trace), or export it (torch.export)",
        )


_STATEMENTS: dict[type[ast.stmt], Callable[[Interpreter, Any, dict[str, Any]], None]] = {
    ast.Assign: Interpreter._assign,
    ast.AnnAssign: Interpreter._annotated,
    ast.Expr: Interpreter._expression,
    ast.If: Interpreter._if,
    ast.For: Interpreter._for,
    ast.While: Interpreter._while,
    ast.Return: Interpreter._return,
    ast.Pass: Interpreter._pass,
}


def bound(
    function: ast.FunctionDef, arguments: Sequence[Any], named: Mapping[str, Any], literal: Callable[[ast.expr], Any]
) -> dict[str, Any]:
    """Returns the function's parameters by name. Parameters without an argument have their defaults.

    Raises:
        MalformedModel: the arguments do not fit the function.
    """
    names = [parameter.arg for parameter in function.args.args]
    others = (function.args.vararg, function.args.kwarg, *function.args.posonlyargs, *function.args.kwonlyargs)
    if any(parameter is not None for parameter in others) or len(set(names)) != len(names):
        raise MalformedModel(f"the function {_quoted(function.name)} of the archive's code has unusual parameters")
    defaults = dict(zip(names[len(names) - len(function.args.defaults) :], function.args.defaults, strict=True))
    scope = dict(zip(names, arguments, strict=False)) | {name: value for name, value in named.items() if name in names}
    scope |= {name: literal(default) for name, default in defaults.items() if name not in scope}
    if len(arguments) > len(names) or scope.keys() != set(names) or named.keys() - set(names):
        raise MalformedModel(
            f"the archive's code calls {_quoted(function.name)} with arguments that it does not accept"
        )
    return scope


def _path(node: ast.expr) -> str:
    """Returns `a.b.c` for names and attributes, and "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _operator(path: str) -> str | None:
    """Returns the operator's name: `torch.relu` -> `aten::relu`, `ops.quantized.add` -> `quantized::add`."""
    match path.split("."):
        case ["torch", name]:
            return f"aten::{name}"
        case ["ops", namespace, name]:
            return f"{namespace}::{name}"
    return None


def _quoted(name: str) -> str:
    return ascii(name[:200])
