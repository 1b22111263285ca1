"""The report of an internal error contains the smallest failing part of the graph, and only its structure."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import tvm

from service.compiler.children import incident
from service.compiler.importers.auto import import_model
from service.compiler.qnn import graph
from tests.support.compiled import EXAMPLES


@pytest.fixture(autouse=True)
def subject() -> Iterator[None]:
    yield
    incident._subjects.clear()


@pytest.fixture(scope="module")
def digits() -> tvm.IRModule:
    return import_model((EXAMPLES / "digits_int8.tflite").read_bytes()).module


def refuses(name: str) -> incident.Again:
    def again(module: tvm.IRModule) -> None:
        for _, _, operation in graph.operations(graph.main_of(module)):
            if operation is not None and operation.name == name:
                raise ZeroDivisionError("weights of secret_layer are 12345")

    return again


def reported(module: tvm.IRModule, again: incident.Again) -> dict[str, object]:
    incident.about({"target": "x86-64-v3"}, module, again)
    try:
        again(module)
    except ZeroDivisionError as error:
        return incident.report("build", error)
    raise AssertionError("it did not fail")


def test_an_operator_that_fails_alone_is_reported_alone(digits: tvm.IRModule) -> None:
    report = reported(digits, refuses("qnn.conv2d"))
    assert report["minimized"] is True
    operators = report["operators"]
    assert isinstance(operators, list)
    assert [each["op"] for each in operators] == ["parameter", "relax.qnn.conv2d"]
    assert any(text.startswith("constant") and "int8" in text for text in operators[1]["operands"])
    assert operators[1]["attributes"]["in_type"]


def test_a_graph_that_fails_only_as_a_whole_is_reported_whole(digits: tvm.IRModule) -> None:
    count = sum(1 for _ in graph.bindings(graph.main_of(digits)))

    def again(module: tvm.IRModule) -> None:
        if sum(1 for _ in graph.bindings(graph.main_of(module))) == count:
            raise ZeroDivisionError

    report = reported(digits, again)
    assert report["minimized"] is False
    assert len(report["operators"]) > 10  # type: ignore[arg-type]


def test_the_report_contains_no_names_values_or_messages(digits: tvm.IRModule) -> None:
    text = json.dumps(reported(digits, refuses("qnn.dense")))
    assert "secret_layer" not in text
    assert "12345" not in text
    names = {str(var.name) for var, _ in graph.bindings(graph.main_of(digits))}
    assert not [name for name in names if len(name) > 4 and f'"{name}"' in text]


def test_the_report_names_the_step_and_the_versions(digits: tvm.IRModule) -> None:
    report = reported(digits, refuses("qnn.dense"))
    assert (report["role"], report["error"], report["target"]) == ("build", "ZeroDivisionError", "x86-64-v3")
    assert report["traceback"][-1].endswith(" again")  # type: ignore[index]
    assert report["versions"]["numpy"]  # type: ignore[index]


def test_a_failed_import_lists_the_operators_up_to_it() -> None:
    incident.about({"format": "tflite"})
    import_model((EXAMPLES / "digits_int8.tflite").read_bytes(), lambda op, tensor: incident.importing(op))
    report = incident.report("import", ValueError("too many values to unpack"))
    imported = report["imported"]
    assert "CONV_2D" in imported
    assert report["imported_count"] == len(imported)
    assert not [each for each in imported if "#" in each]


def test_without_a_module_there_are_no_operators() -> None:
    incident.about({"format": "tflite"})
    report = incident.report("import", ValueError("too many values to unpack"))
    assert (report["format"], "operators" in report) == ("tflite", False)
