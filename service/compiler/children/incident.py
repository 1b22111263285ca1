"""Reports of internal errors. A report contains enough to reproduce the error, but nothing of the model except its
structure.

A role calls `about` to describe its current work. If the role ends with an exception that is not an `OctetError`,
`report` describes the smallest part of the graph that still fails, or else the whole graph: operators, types,
quantization parameters and shapes. Constants are described by type and shape, and tensors by numbers. The report
contains no weights, no names and no metadata of the model. To reproduce the error, constants are filled with random
values.
"""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.operation import value_of
from service.core.errors import InternalError

VERSION = 1
_PACKAGES = ("octet-serve", "apache-tvm", "apache-tvm-ffi", "numpy")
_MOST_OPERATORS = 200
_MOST_FRAMES = 30
_ATTRIBUTE_CHARACTERS = 300
_SEARCH_S = 10.0
_ROOT = Path(__file__).parents[3]

Again = Callable[[tvm.IRModule], object]


@dataclass
class _Subject:
    """The current work of this process.

    Attributes:
        request: the target, numerics mode or format.
        module: the module that is being compiled.
        again: a function that repeats the work on another module.
        imported: the types of the operators whose import has begun, in order.
    """

    request: Mapping[str, str]
    module: tvm.IRModule | None = None
    again: Again | None = None
    imported: list[str] = field(default_factory=list)


_subjects: list[_Subject] = []


def about(request: Mapping[str, str], module: tvm.IRModule | None = None, again: Again | None = None) -> None:
    """Sets the work that the report of a later error describes.

    Args:
        request: the target, numerics mode or format, if the role has them.
        module: the module that is being compiled.
        again: a function that repeats the work on another module. It is used to find the smallest part that fails.
    """
    _subjects[:] = [_Subject(dict(request), module, again)]


def importing(op: str) -> None:
    """Adds an operator to the list in the report of a failed import. `op` is the operator's type, a space and a
    number.
    """
    if _subjects:
        _subjects[0].imported.append(op.partition(" ")[0])


def report(role: str, error: BaseException) -> dict[str, Any]:
    """Returns the report of `error`, as JSON."""
    error = _cause(error)
    subject = _subjects[0] if _subjects else _Subject({})
    found: dict[str, Any] = {
        "version": VERSION,
        "role": role,
        **subject.request,
        "error": type(error).__name__,
        "traceback": list(_frames(error)),
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
    }
    if subject.module is None:
        if subject.imported:  # a module exists only after the import
            found["imported"] = subject.imported[-_MOST_OPERATORS:]
            found["imported_count"] = len(subject.imported)
        return found
    failing, complete = _smallest(subject, type(error)), subject.module
    found["minimized"] = failing is not None
    found["operators"] = list(_described(complete if failing is None else failing))[:_MOST_OPERATORS]
    return found


def _cause(error: BaseException) -> BaseException:
    """If an `InternalError` was raised only to add the operator's name, returns the original exception."""
    return error.__cause__ if isinstance(error, InternalError) and error.__cause__ is not None else error


def _frames(error: BaseException) -> Iterator[str]:
    """Yields the file, line and function of each frame. Messages and local variables are omitted, because they may
    contain values of the model.
    """
    for frame in traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]:
        path = Path(frame.filename)
        file = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else Path(*path.parts[-3:])
        yield f"{file}:{frame.lineno} {frame.name}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _smallest(subject: _Subject, kind: type[BaseException]) -> tvm.IRModule | None:
    """Finds the smallest part that causes the same error: one operator, or two operators where one computes an operand
    of the other.

    Returns None if it finds none within the time limit.
    """
    if subject.module is None or subject.again is None:
        return None
    until_s = time.monotonic() + _SEARCH_S
    found = [(var, value) for var, value in graph.bindings(graph.main_of(subject.module))]
    made = dict(found)
    for var, value in found:
        if not isinstance(value, relax.Call):
            continue
        producer = next((each for each in graph.variables(value) if isinstance(made.get(each), relax.Call)), None)
        for bindings in (
            [(var, value)],
            *([[(producer, made[producer]), (var, value)]] if producer is not None else []),
        ):
            if time.monotonic() > until_s:
                return None
            try:
                part = _module_of(bindings)
                subject.again(part)
            except Exception as failure:
                if type(_cause(failure)) is kind:
                    return part
                # If the error of the part differs, the part is not the cause.
    return None


def _module_of(bindings: list[tuple[relax.Var, relax.Expr]]) -> tvm.IRModule:
    """Returns a module that consists of these bindings. Results of other bindings become parameters."""
    bound = {var for var, _ in bindings}
    read = [var for _, value in bindings for var in graph.variables(value) if var not in bound]
    outside = list(dict.fromkeys(read))
    params = [relax.Var(f"x{index}", var.ty) for index, var in enumerate(outside)]
    environment: dict[relax.Var, relax.Expr] = dict(zip(outside, params, strict=True))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            for index, (var, value) in enumerate(bindings):
                args = [graph.substitute(arg, environment) for arg in value.args]
                environment[var] = graph.emit(builder, graph.with_args(value, args), f"v{index}")
            output = builder.emit_output(environment[bindings[-1][0]])
        builder.emit_func_output(output)
    return builder.get()


def _described(module: tvm.IRModule) -> Iterator[dict[str, Any]]:
    """Describes the operators of a module, in order, with numbers instead of names."""
    function = graph.main_of(module)
    names = {var: f"x{index}" for index, var in enumerate(function.params)}
    for var in function.params:
        yield {"result": names[var], "op": "parameter", "type": _type(var)}
    for index, (var, value) in enumerate(graph.bindings(function)):
        if isinstance(value, relax.Var):
            names[var] = names.get(value, "?")
            continue
        names[var] = f"v{index}"
        described: dict[str, Any] = {"result": names[var], "op": type(value).__name__, "type": _type(var)}
        if isinstance(value, relax.Call):
            attributes = {} if value.attrs is None else {str(key): value.attrs[key] for key in value.attrs.keys()}  # noqa: SIM118
            described["op"] = str(getattr(value.op, "name", value.op))
            described["attributes"] = {key: str(each)[:_ATTRIBUTE_CHARACTERS] for key, each in attributes.items()}
            described["operands"] = [_operand(arg, names) for arg in value.args]
        else:
            described["operands"] = [names.get(each, "?") for each in graph.variables(value)]
        yield described


def _operand(expr: relax.Expr, names: Mapping[relax.Var, str]) -> str:
    if isinstance(expr, relax.Var):
        return names.get(expr, "?")
    if value_of(expr) is not None:
        return f"constant {_type(expr)}"
    if isinstance(expr, relax.Tuple):
        return ", ".join(_operand(field, names) for field in expr.fields)
    return type(expr).__name__  # expr is a shape or a number


def _type(expr: relax.Expr) -> str:
    return str(expr.ty)[:_ATTRIBUTE_CHARACTERS]
