"""The public API has documentation, and its text has every documented name."""

from __future__ import annotations

import inspect

import pytest

import octet
from scripts.surface import name_in, surface
from service.core import errors
from service.core.errors import OctetError


def test_every_public_name_is_documented() -> None:
    assert dir(octet) == octet.__all__ == sorted(octet.__all__)
    for line in (line for line in surface() if ".__bases__: " not in line):
        owner, value = octet, octet
        for name in name_in(line).split(".")[1:]:
            owner = value
            value = inspect.getattr_static(value, name, None) if inspect.isclass(value) else getattr(value, name)
        is_documented_by_its_class = inspect.isclass(owner) and not (
            inspect.isfunction(value) or inspect.isdatadescriptor(value)
        )
        assert is_documented_by_its_class or inspect.getdoc(value), line


def test_documented_attributes_are_public() -> None:
    lines = surface()
    assert "octet.Build.version: int | None" in lines
    assert "octet.Artifact.digest" in lines
    assert "octet.errors.OctetError.hint" in lines
    assert "octet.errors.BuildTimedOut.__bases__: BuildFailed" in lines
    assert "octet.errors.BuildTimedOut.code: 'build_timed_out'" in lines


def test_every_error_is_public() -> None:
    every = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, OctetError)}
    assert set(octet.errors.__all__) == every


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'serve'"):
        octet.serve  # noqa: B018
