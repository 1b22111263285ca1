"""The public Python API as text: one line for each name of `octet`, and for each public member of a class.

    python -m scripts.surface             # prints the lines; `make docs` writes them to docs/reference/surface.txt
    python -m scripts.surface --record    # records them as those of the version in pyproject.toml
    python -m scripts.surface --check     # compares them with those of the last release
    python -m scripts.surface --release   # also requires that this version is recorded

The lines of each release are in docs/reference/releases/VERSION.txt, and never change again. Versions are semantic. A
change that removes a name or makes a call invalid requires a new major version (in version 0, a new minor version). A
change that adds a name requires a new minor version (in version 0, any new version). Until the version in
pyproject.toml is raised, names may be added, but none may be removed.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from packaging.version import Version

import octet
from scripts.surface_changes import Changes, compare

ROOT = Path(__file__).resolve().parent.parent
RELEASES = ROOT / "docs" / "reference" / "releases"


def main() -> int:
    version, lines = current_version(), surface()
    if "--record" in sys.argv:
        record(version, lines)
    elif {"--check", "--release"} & set(sys.argv):
        problems = list(check(releases(), version, lines, is_release="--release" in sys.argv))
        print("\n".join(problems), end="\n" if problems else "")
        return 1 if problems else 0
    else:
        print("\n".join(lines))
    return 0


def surface() -> list[str]:
    """Returns the lines, sorted."""
    return sorted(line for name in octet.__all__ for line in _lines(f"octet.{name}", getattr(octet, name)))


def name_in(line: str) -> str:
    """Returns the dotted name that a line describes."""
    return re.split(r"[(:]", line)[0]


def current_version() -> Version:
    return Version(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def releases() -> dict[Version, list[str]]:
    """Returns the lines of each release, the oldest first."""
    found = {Version(path.stem): path.read_text().splitlines() for path in RELEASES.glob("*.txt")}
    return {version: found[version] for version in sorted(found)}


def record(version: Version, lines: Sequence[str]) -> None:
    """Records the lines of a release. Raises FileExistsError if this version has other lines already."""
    path, text = RELEASES / f"{version}.txt", "".join(f"{line}\n" for line in lines)
    if path.exists() and path.read_text() != text:
        raise FileExistsError(f"{path} has other lines, and those of a release never change; raise the version first")
    path.write_text(text)


def check(
    recorded: Mapping[Version, Sequence[str]], version: Version, lines: Sequence[str], *, is_release: bool
) -> Iterator[str]:
    """Yields a sentence for each violation of semantic versioning.

    Args:
        recorded: the lines of all releases, the oldest first.
        version, lines: those of this tree.
        is_release: true to require that `version` is recorded with exactly these lines.
    """
    history = list(recorded.items())
    for (old, before), (new, after) in pairwise(history):
        yield from _too_small_a_step(old, new, compare(before, after))
    last, before = history[-1]
    changes = compare(before, lines)
    if version < last:
        yield f"version {version} is older than the last release, {last}"
    elif version != last:
        yield from _too_small_a_step(last, version, changes)
        if is_release:
            yield f"the API of {version} is not recorded; run: python -m scripts.surface --record"
    elif is_release and (changes.breaking or changes.added):
        listed = "; ".join([*changes.breaking, *changes.added])
        yield f"the API differs from the one that is recorded for {version}: {listed}; raise the version"
    elif changes.breaking:
        yield from _too_small_a_step(last, version, changes)


def _too_small_a_step(old: Version, new: Version, changes: Changes) -> Iterator[str]:
    """Yields a sentence if version `new` is too small for the changes since version `old`."""
    least = changes.least_version(old)
    if new < least:
        listed = "; ".join(changes.breaking or changes.added)
        yield f"version {new} is too small for these changes of the public API since {old}: {listed}; use {least}"


def _lines(name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        for each in value.__all__:
            yield from _member_lines(f"{name}.{each}", getattr(value, each))
    elif inspect.isclass(value):
        constructed = inspect.getdoc(value.__init__) != inspect.getdoc(object.__init__) and bool(value.__init__.__doc__)
        yield f"{name}{_signature(value)}" if constructed else name  # others are returned by functions
        members = dict(inspect.getmembers_static(value))
        for member, function in members.items():
            if not member.startswith("_"):
                yield f"{name}.{member}{_signature(function)}"
        yield from (f"{name}.{each}" for each in _attributes(value) if each.split(":")[0] not in members)
    else:
        yield f"{name}{_signature(value)}"


def _member_lines(name: str, member: Any) -> Iterator[str]:
    """Yields the lines of a member of a public module. A module of another project is only named."""
    if inspect.isclass(member) and issubclass(member, Exception):
        yield name
        yield f"{name}.__bases__: {' | '.join(base.__name__ for base in member.__bases__)}"
        yield f"{name}.code: {getattr(member, 'code', '')!r}"
        yield from (f"{name}.{attribute}" for attribute in _attributes(member))
    elif inspect.ismodule(member):
        yield name
    else:
        yield from _lines(name, member)


def _attributes(value: type) -> Iterator[str]:
    """Yields the attributes that a class documents, with their types if the class is a dataclass."""
    types = (
        {each.name: f": {each.type}" for each in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}
    )
    section = re.search(r"^Attributes:\n((?: .*\n?|\n)*)", inspect.cleandoc(value.__doc__ or ""), re.MULTILINE)
    for names in re.findall(r"^ {4}(\w[\w, ]*): ", section[1] if section else "", re.MULTILINE):
        yield from (each + types.get(each, "") for each in names.split(", "))


def _signature(value: Any) -> str:
    """Returns the parameters of a function or class or the type of a property, with annotations as in the source; ""
    for an attribute.
    """
    if isinstance(value, property):
        return f": {value.fget.__annotations__['return']}" if value.fget is not None else ""
    value = getattr(value, "__wrapped__", getattr(value, "__func__", value))  # of a cache, or a static method
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return ""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))


if __name__ == "__main__":
    sys.exit(main())
