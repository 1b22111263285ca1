"""Tests of the data plane's part of the OpenAPI document: its references, parameters and operations are consistent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from service.api.oip.document import PATHS, SCHEMAS, TAG

OPERATIONS = {
    f"{method} {path}": (path, operation)
    for path, operations in PATHS.items()
    for method, operation in operations.items()
}


def references(members: Any) -> Iterator[str]:
    """Yields the names of the schemas that a part of the document refers to."""
    if isinstance(members, dict):
        if "$ref" in members:
            yield members["$ref"].removeprefix("#/components/schemas/")
        for member in members.values():
            yield from references(member)
    elif isinstance(members, list):
        for member in members:
            yield from references(member)


def test_every_referenced_schema_exists_and_every_schema_is_used() -> None:
    # The control plane adds the responses of errors, and defines their schema (`control.openapi`).
    assert {*references(PATHS), *references(SCHEMAS)} - {"Problem"} == set(SCHEMAS)


def test_required_members_are_described() -> None:
    def missing(members: Any) -> Iterator[str]:
        if isinstance(members, dict):
            if members.get("type") == "object" and "properties" in members:
                yield from set(members["required"]) - set(members["properties"])
            for member in members.values():
                yield from missing(member)

    assert list(missing(SCHEMAS)) == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_parameters_of_a_path_are_declared(name: str) -> None:
    path, operation = OPERATIONS[name]
    declared = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"]
    assert declared == re.findall(r"\{(\w+)\}", path)
    assert operation["tags"] == [TAG["name"]]


def test_operations_have_names_of_their_own() -> None:
    ids = [operation["operationId"] for _, operation in OPERATIONS.values()]
    assert len(ids) == len(set(ids))


def test_a_version_has_the_operations_of_its_model() -> None:
    prefix = "/v2/models/{model}"
    of_version = {path.removeprefix(f"{prefix}/versions/{{version}}") for path in PATHS if "{version}" in path}
    of_model = {path.removeprefix(prefix) for path in PATHS if path.startswith(prefix) and "{version}" not in path}
    assert of_version == of_model


@pytest.mark.parametrize("path", ["/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer"])
def test_a_prediction_takes_and_returns_raw_bytes(path: str) -> None:
    infer = PATHS[path]["post"]
    types = set(infer["requestBody"]["content"])
    pictures = {f"image/{each}" for each in ("jpeg", "png", "webp", "bmp", "gif")}
    assert types == {"application/json", "application/octet-stream", "multipart/form-data", *pictures}
    assert set(infer["responses"]["200"]["content"]) == {"application/json", "application/octet-stream"}
