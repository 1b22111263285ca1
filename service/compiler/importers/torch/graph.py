"""The module that an import creates. Operators are converted one by one, as the interpreter calls them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from service.compiler.importers.builder.module import At, unsupported_operators
from service.compiler.importers.torch.node import ANOTHER_FORM, Node
from service.compiler.importers.torch.operators import FOLDED_RULES, REAL_RULES, RULES, Rule
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import UNKNOWN, Unknown, Value
from service.core.errors import Unsupported

_MOST_CONSTANTS = 1 << 26  # elements of all constants that are computed while importing
_LONGEST_ARGUMENT = 40  # the longest argument in a message


class Graph:
    """Converts the model's operators and emits them with `builder`.

    An operator that cannot be compiled is recorded and returns an unknown value, so that `check` can list every
    obstacle.
    """

    def __init__(self, builder: relax.BlockBuilder, at: At) -> None:
        self._builder, self._at = builder, at
        # (reason why the operator cannot be compiled, the variable that it computes)
        self._obstacles: list[tuple[str, str]] = []
        self._hint: str | None = None
        self._count = self._constants = 0

    def call(self, name: str, output: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """See `interpreter.Operators`."""
        rule, label = rule_of(name, [*arguments, *named.values()]), f"{name} #{self._count}"
        self._count += 1
        self._at(label, output)
        if rule is None:
            return self._obstacle(name, output)
        if any(_is_unknown(value) for value in (*arguments, *named.values())):
            return UNKNOWN
        try:
            taken = inspect.signature(rule).bind(Node(self._builder, label, output), *arguments, **named)
        except TypeError:
            given = ", ".join([*map(_kind_of, arguments), *(f"{key}={_kind_of(each)}" for key, each in named.items())])
            self._hint = self._hint or ANOTHER_FORM
            return self._obstacle(f"{name} of ({given})", output)
        try:
            return self._counted(rule(*taken.args, **taken.kwargs))
        except (ValueError, IndexError, OverflowError) as exc:  # NumPy, of constants that do not fit together
            self._hint = self._hint or ANOTHER_FORM
            return self._obstacle(f"{name} of constants that do not fit together: {exc}"[:200], output)
        except Unsupported as obstacle:
            self._hint = self._hint or obstacle.hint
            return self._obstacle(f"{name} {obstacle.message.removeprefix(label).strip()}", output)

    def _counted(self, result: Any) -> Any:
        """Limits the elements of all constants that the import computes."""
        if isinstance(result, Tensor):
            self._constants += result.data.size
            if self._constants > _MOST_CONSTANTS:
                raise Unsupported(f"computes more than {_MOST_CONSTANTS} constants while it is imported")
        return result

    def _obstacle(self, what: str, output: str) -> Any:
        self._obstacles.append((what, output))
        return UNKNOWN

    def check(self) -> None:
        """Checks that every operator that was called could be converted.

        Raises:
            UnsupportedOperator: some operators could not. The message lists at most `names.MOST_NAMES` of their types,
                and names the first operator.
        """
        if not self._obstacles:
            return
        each = [(what, f"{what.split(' ')[0]} → {output or 'nothing'}") for what, output in self._obstacles]
        what, output = self._obstacles[0]
        raise unsupported_operators(each, self._count, what.split(" ")[0], output, self._hint)


def rule_of(name: str, arguments: Sequence[Any]) -> Rule | None:
    """Returns the rule for `name`; it may depend on whether the operands are quantized."""
    listed = [each for value in arguments for each in (value if isinstance(value, list | tuple) else [value])]
    if name in FOLDED_RULES and not any(isinstance(each, Value | Unknown) for each in listed):
        return FOLDED_RULES[name]
    if name not in REAL_RULES:
        return RULES.get(name)
    stored = any(isinstance(each, Value) and each.quantized is not None for each in listed)
    return RULES[name] if stored and name in RULES else REAL_RULES[name]


def _kind_of(argument: Any) -> str:
    """Returns a description of an argument's type for messages."""
    if isinstance(argument, Value):
        return "quantized tensor" if argument.quantized is not None else "tensor"
    if isinstance(argument, Tensor):
        return "constant"
    if isinstance(argument, bool | int | float | str | None):
        return ascii(argument)[:_LONGEST_ARGUMENT]
    return type(argument).__name__.lower()


def _is_unknown(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(each, Unknown) for each in value)
    return isinstance(value, Unknown)
