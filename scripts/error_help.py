"""Writes the headings and the meanings in `docs/errors.md` from the code's errors: `python -m scripts.error_help`.

The page has a section for each error code, in the order of the classes in `service.core.errors`. This program writes
the first two lines of a section. People write the rest: what to do, and an example. A new error gets a section with the
text `To be written.`, and `tests/unit/scripts/test_error_help.py` fails until it is replaced.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from service.api import statuses
from service.cli import client as _client
from service.compiler.qnn import operation as _operation
from service.compiler.qnn import parser as _parser
from service.compiler.qnn import types as _types
from service.compiler.qnn.expressions import formula as _formula
from service.core import errors

PAGE = Path(__file__).resolve().parent.parent / "docs/errors.md"
MISSING = "To be written."
# The modules that define errors.
_DEFINITIONS = (errors, _client, _operation, _parser, _types, _formula)
_SECTION = re.compile(r"^## `(\w+)`\n.*\n((?:(?!^## ).*\n?)*)", re.MULTILINE)


def kinds() -> list[type[errors.OctetError]]:
    """Returns the class of each error code."""
    names = {module.__name__ for module in _DEFINITIONS}
    return [kind for kind in _tree(errors.OctetError) if kind is not errors.OctetError and kind.__module__ in names]


def sections(page: str) -> dict[str, str]:
    """Returns the handwritten text of each code's section."""
    return {code: text.strip() for code, text in _SECTION.findall(page)}


def updated(page: str) -> str:
    """Returns the page with the sections of today's errors."""
    texts = sections(page)
    parts = [page[: page.find("\n## ")].rstrip()]
    for kind in kinds():
        meaning = inspect.cleandoc(kind.__doc__ or "").split("\n")[0]
        parts.append(f"## `{kind.code}`\n{_status(kind)}{meaning}\n\n{texts.get(kind.code, MISSING)}")
    return "\n\n".join(parts) + "\n"


def _status(kind: type[errors.OctetError]) -> str:
    if kind.__module__ != errors.__name__:
        return ""  # errors of commands and of dialects, which no server sends
    return f"HTTP {next(statuses.STATUS[each] for each in kind.__mro__ if each in statuses.STATUS)}. "


def _tree(kind: type[errors.OctetError]) -> Iterator[type[errors.OctetError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
