"""Compares two versions of the public Python API, as `scripts.surface` prints them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from packaging.version import Version

_NOTHING = ast.Tuple([])  # as the default of a parameter that takes any number of arguments
_PATHS = frozenset({"Path"})  # what a parameter of type PathLike[str] accepts


@dataclass(frozen=True)
class Changes:
    """The changes between two versions, as short texts.

    Attributes:
        breaking: what makes a correct program incorrect: removed names, and calls that are not valid any more.
        added: names, and parameters that may be omitted.
    """

    breaking: tuple[str, ...]
    added: tuple[str, ...]

    def least_version(self, old: Version) -> Version:
        """Returns the smallest version that may have these changes, if they are made to version `old`."""
        major, minor, micro = old.release
        if self.breaking:
            return Version(f"{major + 1}.0.0" if major else f"0.{minor + 1}.0")
        if self.added:
            return Version(f"{major}.{minor + 1}.0" if major else f"0.{minor}.{micro + 1}")
        return old


def compare(old: Sequence[str], new: Sequence[str]) -> Changes:
    """Returns the changes from the lines `old` to the lines `new`."""
    before, after = _by_name(old), _by_name(new)
    breaking = [f"{name} was removed" for name in before if name not in after]
    added = [f"{name} was added" for name in after if name not in before]
    for name in before.keys() & after.keys():
        if before[name] == after[name]:
            continue
        found = [f"{name}: {problem}" for problem in _problems(before[name], after[name])]
        breaking += found
        added += [] if found else [f"{name} was extended"]
    return Changes(tuple(sorted(breaking)), tuple(sorted(added)))


def _by_name(lines: Sequence[str]) -> dict[str, str]:
    """Maps each name to its parameters and result, or to its type."""
    found = (re.split(r"(?=[(:])", line, maxsplit=1) for line in lines)
    return {name: "".join(rest) for name, *rest in found}


def _problems(old: str, new: str) -> Iterator[str]:
    """Yields what a program that fits `old` cannot do any more."""
    if old[:1] != new[:1]:
        yield f"{old or 'a name'} became {new or 'a name'}"
    elif old.startswith("("):
        before, after = _function(old), _function(new)
        yield from _calls(_parameters(before), _parameters(after))
        yield from _results(before.returns, after.returns)
    else:
        yield from _results(*(ast.parse(each.removeprefix(": "), mode="eval").body for each in (old, new)))


@dataclass(frozen=True)
class _Parameter:
    name: str
    is_positional: bool
    types: frozenset[str]
    default: str | None


def _function(text: str) -> ast.FunctionDef:
    (function,) = ast.parse(f"def f{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    return function


def _parameters(function: ast.FunctionDef) -> list[_Parameter]:
    """Returns the parameters; one that takes any number of arguments has its stars in its name."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    found = [
        _parameter(each, True, None if index < without else arguments.defaults[index - without])
        for index, each in enumerate(positional)
    ]
    if arguments.vararg is not None:
        found.append(_parameter(arguments.vararg, False, _NOTHING, "*"))
    found += [
        _parameter(each, False, default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        found.append(_parameter(arguments.kwarg, False, _NOTHING, "**"))
    return found


def _parameter(argument: ast.arg, is_positional: bool, default: ast.expr | None, stars: str = "") -> _Parameter:
    text = None if default is None else ast.unparse(default)
    return _Parameter(stars + argument.arg, is_positional, _types(argument.annotation), text)


def _calls(old: list[_Parameter], new: list[_Parameter]) -> Iterator[str]:
    named = {each.name: each for each in new}
    for parameter in old:
        after = named.get(parameter.name)
        if after is None:
            yield f"parameter {parameter.name} was removed"
        elif parameter.default is not None and after.default is None:
            yield f"parameter {parameter.name} lost its default"
        elif parameter.default is not None and parameter.default != after.default:
            yield f"the default of {parameter.name} changed from {parameter.default} to {after.default}"
        elif refused := _refused(parameter.types, after.types):
            yield f"parameter {parameter.name} does not accept {_join_types(refused)}"
    before, after_order = ([each.name for each in side if each.is_positional] for side in (old, new))
    for mine, theirs in zip_longest(before, after_order):
        if mine is not None and mine in named and mine != theirs:
            yield f"parameter {mine} is at another position"
    names = {each.name for each in old}
    for parameter in new:
        if parameter.name not in names and parameter.default is None:
            yield f"parameter {parameter.name} is required"


def _refused(old: frozenset[str], new: frozenset[str]) -> frozenset[str]:
    """Returns the types that a parameter accepted and does not accept any more."""
    if "Any" in new:
        return frozenset()
    return old - new - (_PATHS if "PathLike[str]" in new else frozenset())


def _results(old: ast.expr | None, new: ast.expr | None) -> Iterator[str]:
    before, after = _types(old), _types(new)
    if not after <= before and "Any" not in before:
        yield f"its type changed from {_join_types(before)} to {_join_types(after)}"


def _types(annotation: ast.expr | None) -> frozenset[str]:
    """Returns the members of a union; one type is a union of one."""
    if annotation is None:
        return frozenset()
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return _types(annotation.left) | _types(annotation.right)
    return frozenset({ast.unparse(annotation)})


def _join_types(types: frozenset[str]) -> str:
    return " | ".join(sorted(types)) or "any type"
