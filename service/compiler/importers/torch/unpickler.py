"""Reads pickles without executing anything.

A pickle is a program for a stack machine, and Python's own machine calls every function that the program names. This
machine implements only the opcodes that PyTorch's pickler writes (torch/csrc/jit/serialization/pickler.cpp), and
accepts only an explicit list of names. Each name is mapped to a function of Octet that returns an inert record. Any
other name or opcode is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from service.core.errors import MalformedModel, Unsupported

_MOST_STEPS = 1 << 22
_MOST_STACKED = 1 << 20  # limit of the values on the stack, and of the entries of the memo
_LONGEST_INTEGER_BYTES = 8


@dataclass(frozen=True)
class Global:
    """A name in a pickle. It is never resolved by Python."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass
class Object:
    """An instance of a class that the archive's code defines.

    Attributes:
        kind: the class, as in the archive's code.
        state: the saved state. It contains attributes by name, or is the argument of `__setstate__`.
    """

    kind: Global
    state: Any = field(default=None, repr=False)


# A function that takes the arguments of a name and creates its record.
Maker = Callable[..., Any]

_MARK = object()


class Unpickler:
    """The stack machine.

    Args:
        makers: `module.name` -> the function that creates its record.
        constants: `module.name` -> a value.
        classes: returns true if the pickle may contain instances (`Object`) of classes in `module`.
        load: takes a persistent id and returns its record.
    """

    def __init__(
        self,
        makers: Mapping[str, Maker],
        constants: Mapping[str, Any],
        classes: Callable[[str], bool],
        load: Callable[[Any], Any],
    ) -> None:
        self._makers, self._constants, self._classes, self._load = makers, constants, classes, load

    def run(self, data: bytes) -> Any:
        """Returns the value that the pickle describes.

        Raises:
            MalformedModel: the pickle is damaged, or does something other than describe records.
        """
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        try:
            return self._run(data)
        except (ValueError, IndexError, KeyError, TypeError, UnicodeError, OverflowError) as exc:
            raise MalformedModel(f"the pickle in the archive is damaged: {type(exc).__name__}") from exc

    def _run(self, data: bytes) -> Any:
        for step, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if step > _MOST_STEPS or len(self._stack) + len(self._memo) > _MOST_STACKED:
                _malformed("is too long")
            if opcode.name == "STOP":
                return self._result()
            self._step(opcode.name, argument)
        raise MalformedModel("the pickle in the archive has no end")

    def _result(self) -> Any:
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            _malformed("does not end with one value")
        return self._stack[0]

    def _step(self, name: str, argument: Any) -> None:
        if name in _IGNORED:
            return
        if name in _LITERALS:
            self._stack.append(_LITERALS[name]() if argument is None else argument)
            return
        handler = _HANDLERS.get(name)
        if handler is None:
            _malformed(f"uses the opcode {name}, which PyTorch does not write")
        handler(self, argument)

    # -- the stack

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            _malformed("reads a value at the start of a list")
        return value

    def _popped_to_mark(self) -> list[Any]:
        for index in range(len(self._stack) - 1, -1, -1):
            if self._stack[index] is _MARK:
                values = self._stack[index + 1 :]
                del self._stack[index:]
                return values
        raise MalformedModel("the pickle in the archive ends a list that it did not begin")

    def _top(self, kind: type) -> Any:
        if not isinstance(self._stack[-1], kind):
            _malformed(f"adds to something other than a {kind.__name__}")
        return self._stack[-1]

    # -- opcodes

    def _integer(self, argument: int) -> None:
        if argument.bit_length() > 8 * _LONGEST_INTEGER_BYTES:
            _malformed("has an integer with more than 64 bits")
        self._stack.append(argument)

    def _mark(self, _: Any) -> None:
        self._stack.append(_MARK)

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._popped_to_mark()))

    def _short_tuple(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(values)))

    def _append(self, _: Any) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _appends(self, _: Any) -> None:
        values = self._popped_to_mark()
        self._top(list).extend(values)

    def _set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set(key, value)

    def _set_items(self, _: Any) -> None:
        values = self._popped_to_mark()
        for key, value in zip(values[::2], values[1::2], strict=True):
            self._set(key, value)

    def _set(self, key: Any, value: Any) -> None:
        if not isinstance(key, str | int):
            _malformed("has a key that is neither text nor a number")
        self._top(dict)[key] = value

    def _put(self, index: int) -> None:
        if self._stack[-1] is _MARK:
            _malformed("stores the start of a list in its memo")
        self._memo[index] = self._stack[-1]

    def _memoize(self, _: Any) -> None:
        self._put(len(self._memo))

    def _get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(self._named(Global(module, name)))

    def _stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            _malformed("has a name that is not text")
        self._stack.append(self._named(Global(module, name)))

    def _named(self, found: Global) -> Any:
        if str(found) in self._constants:
            return self._constants[str(found)]
        if str(found) in self._makers or self._classes(found.module):
            return found
        # A name of PyTorch may be valid in another version. PyTorch itself refuses a file with any other name.
        refusal = Unsupported if found.module.split(".")[0] == "torch" else MalformedModel
        raise refusal(
            f"the pickle in the archive names {str(found)[:200]!a}, which Octet does not read; nothing was executed",
            hint="save the model with torch.jit.save or torch.export.save",
        )

    def _reduce(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Global) or str(function) not in self._makers or not isinstance(arguments, tuple):
            _malformed("calls something that Octet does not read")
        self._stack.append(self._makers[str(function)](*arguments))

    def _new_object(self, _: Any) -> None:
        arguments, kind = self._pop(), self._pop()
        if not isinstance(kind, Global) or not self._classes(kind.module) or arguments != ():
            _malformed("creates an instance of a class that the archive does not define")
        self._stack.append(Object(kind))

    def _build(self, _: Any) -> None:
        state = self._pop()
        self._top(Object).state = state

    def _persistent(self, _: Any) -> None:
        self._stack.append(self._load(self._pop()))


_IGNORED = ("PROTO", "FRAME")
_LITERALS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "BINFLOAT": float,
    "BINUNICODE": str,
    "SHORT_BINUNICODE": str,
    "BINUNICODE8": str,
}
_HANDLERS: dict[str, Callable[[Unpickler, Any], None]] = {
    "BININT": Unpickler._integer,
    "BININT1": Unpickler._integer,
    "BININT2": Unpickler._integer,
    "LONG1": Unpickler._integer,
    "MARK": Unpickler._mark,
    "TUPLE": Unpickler._tuple,
    "TUPLE1": lambda machine, _: machine._short_tuple(1),
    "TUPLE2": lambda machine, _: machine._short_tuple(2),
    "TUPLE3": lambda machine, _: machine._short_tuple(3),
    "APPEND": Unpickler._append,
    "APPENDS": Unpickler._appends,
    "SETITEM": Unpickler._set_item,
    "SETITEMS": Unpickler._set_items,
    "BINPUT": Unpickler._put,
    "LONG_BINPUT": Unpickler._put,
    "MEMOIZE": Unpickler._memoize,
    "BINGET": Unpickler._get,
    "LONG_BINGET": Unpickler._get,
    "GLOBAL": Unpickler._global,
    "STACK_GLOBAL": Unpickler._stack_global,
    "REDUCE": Unpickler._reduce,
    "NEWOBJ": Unpickler._new_object,
    "BUILD": Unpickler._build,
    "BINPERSID": Unpickler._persistent,
}


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the pickle in the archive {what}")
