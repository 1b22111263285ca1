"""Prints the public Python API: one line for each name of `octet`, with its signature, and for each public member of a
class. `make surface` writes the lines of a release to `docs/reference/surface.txt`; a test compares them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import octet


def surface() -> list[str]:
    """Returns the lines, sorted."""
    return sorted(line for name in octet.__all__ for line in _lines(f"octet.{name}", getattr(octet, name)))


def _lines(name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield from (f"{name}.{each}" for each in value.__all__)
    elif inspect.isclass(value):
        constructed = inspect.getdoc(value.__init__) != inspect.getdoc(object.__init__) and bool(value.__init__.__doc__)
        yield f"{name}{_signature(value)}" if constructed else name  # others are returned by functions
        for member, function in inspect.getmembers_static(value):
            if not member.startswith("_"):
                yield f"{name}.{member}{_signature(function)}"
    else:
        yield f"{name}{_signature(value)}"


def _signature(value: Any) -> str:
    """Returns the parameters of a function or class, with annotations as in the source; "" for an attribute."""
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return ""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))


if __name__ == "__main__":
    print("\n".join(surface()))
