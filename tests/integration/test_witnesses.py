"""Builds report the runtimes with which they were compared: one that ran, one that differs, one that rejected the
model, and one that is missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cache import OciLayout
from service.compiler.build.answers import SAMPLES
from service.core.artifacts.artifact import Report
from tests.support.compiled import EXAMPLES, compile_file
from tests.support.onnx_builder import OnnxBuilder
from tests.support.s8s8 import s8s8_network
from tests.support.without_package import octet_without

DIGITS = EXAMPLES / "digits_int8.tflite"


def numerics_of(model: bytes, folder: Path, numerics: str = "onnxruntime", suffix: str = ".onnx") -> Any:
    source, layout = folder / f"model{suffix}", OciLayout(folder / "store")
    source.write_bytes(model)
    artifact = compile_file(source, layout, folder / "scratch", numerics=numerics)
    return json.loads(layout.attached(artifact, Report.NUMERICS) or b"{}")


def test_without_litert_the_report_does_not_mention_it(tmp_path: Path) -> None:
    process = octet_without(("ai_edge_litert",), tmp_path, "compile", DIGITS, "-o", tmp_path / "out", "--json")
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)["reports"]["numerics"]
    assert (report["outcome"], report["reference"], report["verified"]) == ("own_only", None, True)
    own, litert = report["witnesses"]
    assert own["own"]
    assert (litert["name"], litert["version"], litert["ran"], litert["reason"]) == (
        "LiteRT",
        None,
        False,
        "is not installed here",
    )


@pytest.mark.slow  # the report, which the previous test reads, contains the same
def test_without_litert_the_command_reports_it(tmp_path: Path) -> None:
    process = octet_without(("ai_edge_litert",), tmp_path, "compile", DIGITS, "-o", tmp_path / "out")
    assert process.returncode == 0, process.stderr
    line = "against Octet's own canonical form only: all 2,780 values from 278 inputs are equal"
    assert f"checked     {line}" in process.stdout
    assert "LiteRT is not installed here" in process.stdout
    assert "against LiteRT" not in process.stdout


@pytest.fixture(scope="module")
def s8s8(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return numerics_of(s8s8_network(), tmp_path_factory.mktemp("s8s8"))


def test_onnxruntime_runs_with_the_option_of_the_mode(s8s8: Any) -> None:
    _, witness = s8s8["witnesses"]
    assert witness["options"]["session.qdqisint8allowed"] == "1"
    assert (s8s8["outcome"], witness["equal"]) == ("equal", witness["values"])
    assert witness["inputs"] == s8s8["inputs"]["count"] > SAMPLES
    assert "session.qdqisint8allowed=1" in s8s8["reference"]


def test_the_outputs_of_a_default_session_are_measured_but_are_not_a_verdict(s8s8: Any) -> None:
    default, unoptimized = s8s8["other_sessions"]
    assert (default["note"], default["options"]) == ("a default session", {})
    assert unoptimized["options"]["graph_optimization_level"] == "ORT_DISABLE_ALL"
    assert 0 < default["values"] - default["equal"] < default["values"]
    assert default["largest_steps"] >= 1
    assert default["equal_percent"] < 100


@pytest.mark.parametrize("function", ["Log", pytest.param("Sqrt", marks=pytest.mark.slow)])
def test_a_model_with_nan_in_its_outputs_is_verified(function: str, tmp_path: Path) -> None:
    model = OnnxBuilder()
    model.output(model.node(function, [model.input("x", "float32", (1, 8))]), "float32", (1, 8))
    report = numerics_of(model.build(), tmp_path)
    assert (report["exact"], report["verified"]) == (True, True)
    assert report["outcome"] in ("equal", "documented")


def test_a_mask_of_minus_infinity_that_hides_everything_is_verified(tmp_path: Path) -> None:
    model = OnnxBuilder()
    mask, scores = model.input("mask", "bool", (1, 16)), model.input("x", "float32", (1, 16))
    hidden = model.node("Where", [mask, model.constant([0.0], "float32"), model.constant([-np.inf], "float32")])
    model.output(model.node("Softmax", [model.node("Add", [scores, hidden])]), "float32", (1, 16))
    report = numerics_of(model.build(), tmp_path)
    assert (report["exact"], report["verified"]) == (True, True)
    assert report["outcome"] in ("equal", "documented")


def rows_of_a_table(rows: int) -> bytes:
    """Returns a model that looks up row `x` of a table. ONNX Runtime accepts indices from -`rows` to `rows` - 1."""
    model, rng = OnnxBuilder(), np.random.default_rng(0)
    table = model.dequantized(model.constant(rng.integers(0, 255, (rows, 4)), "uint8"), 0.1, 7, "uint8")
    position = model.node("Cast", [model.input("x", "uint8", (1, 5))], to=7)
    found = model.node("Gather", [table, model.node("Add", [position, model.constant([1], "int64")])])
    model.output(model.quantized(found, 0.1, 7, "uint8"), "uint8", (1, 5, 4))
    return model.build()


def test_inputs_that_the_runtime_rejects_are_named_and_not_counted(tmp_path: Path) -> None:
    report = numerics_of(rows_of_a_table(250), tmp_path)
    own, witness = report["witnesses"]
    assert 0 < witness["inputs"] < own["inputs"]
    assert witness["inputs"] + len(witness["refused"]) == own["inputs"]
    assert witness["kinds"]["minimum"] == 1
    assert "maximum" in [refused["kind"] for refused in witness["refused"]]
    assert all("out of data bounds" in refused["message"] for refused in witness["refused"])


def test_a_runtime_that_accepts_no_input_counts_as_not_run(tmp_path: Path) -> None:
    report = numerics_of(rows_of_a_table(1), tmp_path)
    _, witness = report["witnesses"]
    assert (witness["ran"], report["outcome"], report["reference"]) == (False, "own_only", None)
    assert "refused every input" in report["summary"]


def test_float_operators_are_in_the_report(tmp_path: Path) -> None:
    model, rng = OnnxBuilder(), np.random.default_rng(0)
    x = model.dequantized(model.input("x", "uint8", (1, 16)), 0.1, 7, "uint8")
    weights = model.constant(rng.normal(size=(16, 4)), "float32")
    model.output(model.quantized(model.node("MatMul", [x, weights]), 0.1, 7, "uint8"), "uint8", (1, 4))
    found = numerics_of(model.build(), tmp_path)["float"]
    assert found["macs_percent"] == 100
    assert len(found["operators"]) == 1
