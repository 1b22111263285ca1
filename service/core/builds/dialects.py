"""Dialects: files and packages with which the operator of a deployment extends the compiler.

This module finds them and computes their digests, but does not run them; `compiler.dialects` does. The setting is an
environment variable, because every process of a build reads it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from service.core.digest import Digest, digest_of_file, digest_of_json
from service.core.errors import InvalidInput

VARIABLE = "OCTET_DIALECTS"
# An entry point in one of these groups is a module that defines a dialect, or a function that does when it is called.
GROUPS = ("octet.operators", "octet.patterns", "octet.passes", "octet.importers")

_changing = threading.RLock()


@dataclass(frozen=True)
class Source:
    """The source of a dialect: a Python file, or the entry points of that name of installed packages."""

    name: str
    file: Path | None
    entries: tuple[EntryPoint, ...] = ()

    @property
    def digest(self) -> Digest:
        """The digest of the file, or of all Python files of the packages."""
        if self.file is not None:
            return digest_of_file(self.file)
        return digest_of_json({entry.value: _package_digest(entry) for entry in self.entries})


def configure(sources: Sequence[str | Path]) -> None:
    """Sets the dialects of this process and of the processes that it starts. Paths become absolute."""
    names = [str(Path(each).absolute()) if _is_file(str(each)) else str(each) for each in sources]
    if any(os.pathsep in name for name in names):
        raise InvalidInput(f"the path of a dialect cannot contain {os.pathsep!r}")
    os.environ[VARIABLE] = os.pathsep.join(names)


def add(sources: Sequence[str | Path]) -> None:
    """Adds dialects to those of this process. Raises `InvalidInput` if one of those does not exist."""
    configure([*(each.name if each.file is None else each.file for each in configured()), *sources])


@contextmanager
def added(sources: Sequence[str | Path]) -> Iterator[None]:
    """Adds dialects for the duration of a `with` block. Blocks of several threads wait for one another.

    The setting belongs to the whole process, so what other threads compile meanwhile is compiled with the dialects too.

    Raises:
        InvalidInput: a dialect cannot be found.
    """
    if not sources:
        yield
        return
    with _changing:
        before = os.environ.get(VARIABLE, "")
        try:
            add(sources)
            configured()
            yield
        finally:
            os.environ[VARIABLE] = before


def environment() -> dict[str, str]:
    """Returns the environment variable for child processes; {} if no dialect is configured."""
    return {VARIABLE: os.environ[VARIABLE]} if os.environ.get(VARIABLE) else {}


def configured() -> tuple[Source, ...]:
    """Returns the configured dialects in order.

    Raises:
        InvalidInput: a file does not exist, or no installed package has an entry point of a name.
    """
    return tuple(_sources(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))))


def digests() -> dict[str, Digest]:
    """Returns the digest of each configured dialect, by name: a part of the key of every build."""
    return {f"dialect {each.name}": each.digest for each in configured()}


def _sources(names: Iterator[str]) -> Iterator[Source]:
    for name in names:
        if _is_file(name):
            path = Path(name)
            if not path.is_file():
                raise InvalidInput(f"the dialect {path} is not a file", hint=f"set {VARIABLE} or --dialect to a file")
            yield Source(path.stem, path.absolute())
            continue
        found = tuple(entry for group in GROUPS for entry in entry_points(group=group, name=name))
        if not found:
            raise InvalidInput(
                f"no installed package has the dialect {name!r}",
                hint=f"name a file that ends with .py, or an entry point of {', '.join(GROUPS)}",
            )
        yield Source(name, None, found)


def _is_file(name: str) -> bool:
    return name.endswith(".py") or os.sep in name


def _package_digest(entry: EntryPoint) -> Digest:
    spec = find_spec(entry.module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise InvalidInput(f"the package of the entry point {entry.value} has no source files")
    origin = Path(spec.origin)
    files = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
    return digest_of_json({str(file.relative_to(origin.parent)): digest_of_file(file) for file in files})
