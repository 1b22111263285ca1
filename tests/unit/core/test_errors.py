"""Tests of the error classes: their codes, their documents, and the tree in the module's docstring."""

from __future__ import annotations

import re

import pytest

from service.core import errors
from service.core.errors import BuildFailed, InternalError, InvalidTensor, OctetError, from_json


def _classes(parent: type[OctetError] = OctetError) -> list[type[OctetError]]:
    local = [child for child in parent.__subclasses__() if child.__module__ == errors.__name__]
    return [each for child in local for each in (child, *_classes(child))]


@pytest.mark.parametrize("error_type", _classes(), ids=lambda error_type: str(error_type.__name__))
def test_a_document_gives_an_equal_error(error_type: type[OctetError]) -> None:
    error = error_type("it failed", stage="verify", op="qnn.add", tensor="y", hint="retry it")
    read = from_json(error.to_json())
    assert type(read) is error_type
    assert read.to_json() == error.to_json()


def test_each_class_has_a_code_of_its_own() -> None:
    codes = [each.code for each in _classes()]
    assert len(codes) == len(set(codes))


def test_an_unknown_code_becomes_a_failed_build() -> None:
    error = from_json({"code": "of_a_newer_server", "message": "it failed"})
    assert (type(error), error.message) == (BuildFailed, "it failed")


def test_the_report_of_an_internal_error_is_kept() -> None:
    error = from_json(InternalError("a defect", report={"stage": "link"}).to_json())
    assert isinstance(error, InternalError)
    assert error.report == {"stage": "link"}


def test_the_report_of_another_error_is_ignored() -> None:
    assert from_json({**InvalidTensor().to_json(), "report": {"stage": "link"}}).to_json() == InvalidTensor().to_json()


def test_the_tree_in_the_docstring_is_that_of_the_classes() -> None:
    path: list[str] = []
    tree = {}
    for branch, name in re.findall(r"^((?:[│ ]   )*[├└]── )(\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(branch) // 4
        path = [*path[: depth - 1], name]
        tree[name] = path[-2] if depth > 1 else "OctetError"
    assert tree == {each.__name__: each.__base__.__name__ for each in _classes() if each.__base__}
