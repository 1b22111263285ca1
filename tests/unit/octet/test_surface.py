"""The public API follows semantic versioning: until the next minor release (in version 0) or major release, no name or
parameter of the last release changes.
"""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest

import octet
from scripts.surface import surface
from service.core import errors
from service.core.errors import OctetError

ROOT = Path(__file__).parents[3]
RELEASED, *LINES = (ROOT / "docs" / "reference" / "surface.txt").read_text().splitlines()


def breaking(version: str) -> str:
    """Returns the part of a version that changes with a breaking release."""
    major, minor, *_ = version.split(".")
    return f"{major}.{minor}" if major == "0" else major


def test_nothing_of_the_last_release_is_missing_or_different() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if breaking(version) == breaking(RELEASED):
        missing = sorted(set(LINES) - set(surface()))
        assert not missing, "these may change only in the next breaking release"


def test_versions_that_may_break_the_api() -> None:
    assert breaking("0.2.0") == breaking("0.2.9") != breaking("0.3.0")
    assert breaking("1.2.0") == breaking("1.3.0") != breaking("2.0.0")


def test_every_public_name_is_documented() -> None:
    assert dir(octet) == octet.__all__ == sorted(octet.__all__)
    for line in surface():
        value = octet
        for name in line.split("(")[0].split(".")[1:]:
            value = inspect.getattr_static(value, name) if inspect.isclass(value) else getattr(value, name)
        is_field = inspect.isdatadescriptor(value) and not isinstance(value, property)
        assert is_field or inspect.getdoc(value), line


def test_every_error_is_public() -> None:
    every = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, OctetError)}
    assert set(octet.errors.__all__) == every


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'serve'"):
        octet.serve  # noqa: B018
