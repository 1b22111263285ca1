"""Tests of the OpenAPI document, from which the API reference is generated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from service.api.app import control_plane
from tests.support.control_plane import ControlPlane

METHODS = ("get", "put", "post", "head")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return control_plane().openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


def test_the_running_server_gives_the_same_document(plane: ControlPlane, document: dict[str, Any]) -> None:
    assert plane.client.get("/api/v1/openapi.json").json() == document


def test_every_operation_has_a_summary_and_a_tag_that_is_described(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for name, operation in operations(document):
        assert operation.get("summary"), name
        assert set(operation["tags"]) <= tags, name
        assert operation["tags"], name


def test_every_operation_describes_its_errors(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            if status == "default" or status >= "400":
                content = response["content"]
                assert content == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}, (
                    name
                )
        assert "default" in operation["responses"], name


def test_operations_have_unique_ids(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))


def test_every_reference_can_be_resolved(document: dict[str, Any]) -> None:
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            for key, value in node.items():
                yield from [value] if key == "$ref" else references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    found = set(references(document))
    assert found
    assert found <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def test_a_problem_document_has_the_members_of_its_schema(plane: ControlPlane, document: dict[str, Any]) -> None:
    members = plane.client.get("/api/v1/nothing").json().keys()
    schema = document["components"]["schemas"]["Problem"]
    assert set(schema["required"]) <= members <= set(schema["properties"])
