from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from tests.support.onnx_builder import OnnxBuilder
from tests.support.tflite_metadata import IMAGE, Described, labels_in, metadata_buffer, with_metadata

SAMPLE = Path(__file__).resolve().parents[5] / "examples" / "digits_int8.tflite"
BERT = Path(__file__).resolve().parents[4] / "fixtures" / "onnx" / "bert.qdq.onnx"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_models_facts() -> None:
    facts = json.loads(run("inspect", str(SAMPLE), "--json"))
    assert facts["format"] == "tflite"
    assert facts["signature"]["inputs"][0]["shape"] == [1, 16, 16, 1]
    assert facts["weights"] == {"storage": ["int8"], "granularity": ["per-axis"], "symmetric": True}
    assert facts["activations"]["symmetric"] is False
    assert facts["operators"]["conv2d"] == 6
    assert facts["macs"] == 246_000


def test_a_models_facts_for_people() -> None:
    shown = run("inspect", str(SAMPLE))
    assert "int8 per-axis, symmetric" in shown
    assert "246 k" in shown


def test_labels_in_the_file_and_their_errors_are_shown(tmp_path: Path) -> None:
    metadata = metadata_buffer([Described(IMAGE, [127.5], [127.5])], [labels_in()])
    (tmp_path / "model.tflite").write_bytes(with_metadata(SAMPLE.read_bytes(), metadata, {"labels.txt": "cat"}))
    shown = " ".join(run("inspect", str(tmp_path / "model.tflite")).split())
    assert "metadata mean 0.5, std 0.5, nhwc" in shown
    assert "notice labels in the file's metadata cannot be used: there are 1 of them in 'labels.txt'" in shown


def test_the_ids_of_a_vocabulary_are_shown() -> None:
    assert "INT64 [1, 12], 0 to 39" in run("inspect", str(BERT))
    bounds = json.loads(run("inspect", str(BERT), "--json"))["signature"]["inputs"][0]["bounds"]
    assert bounds == {"low": 0, "high": 39}


@pytest.mark.parametrize("command", [("inspect",), ("explain",)])
def test_the_graph_names_its_types(command: tuple[str, ...]) -> None:
    lines = run(*command, str(SAMPLE), "--graph").splitlines()
    assert lines[0].startswith("!0 = !quant.uniform<i8:f32, ")
    (convolution, *_) = [line for line in lines if "qnn.conv2d" in line]
    assert re.search(r"%\d+ = qnn.conv2d\(%0, const<\d+x3x3x1xi8>, const<\d+xi32>\) \{in_type = !0, ", convolution)
    assert ": tensor<1x" in convolution
    assert lines[-1].startswith("  return %")


FIXTURES = SAMPLE.parents[1] / "tests" / "fixtures"


def test_a_model_that_is_not_compiled_is_outlined() -> None:
    """The outline shows the shapes that the file leaves open."""
    outline = json.loads(run("inspect", str(FIXTURES / "lengths" / "bert.static.onnx"), "--json"))
    assert outline["error"]["code"] == "unsupported"
    assert outline["quantized"]
    assert outline["operators"]["Softmax"] == 1
    assert outline["inputs"][0]["shape"] == ["N", "L"]


def test_shapes_of_several_inputs_are_given_together_or_one_by_one(tmp_path: Path) -> None:
    model = OnnxBuilder()
    total = model.node("Add", [model.input(name, "float32", ["N", 4]) for name in "ab"])
    model.output(total, "float32")
    path = tmp_path / "add.onnx"
    path.write_bytes(model.build())
    for options in (["--shape", "a=3,4;b=3,4"], ["--shape", "a=3,4", "--input-shape", "b=3,4"]):
        facts = json.loads(run("inspect", str(path), *options, "--json"))
        assert [each["shape"] for each in facts["signature"]["inputs"]] == [[3, 4], [3, 4]]


def test_a_fixed_input_is_shown(tmp_path: Path) -> None:
    model = OnnxBuilder()
    model.output(model.node("Add", [model.input(name, "float32", [2]) for name in "ab"]), "float32")
    path = tmp_path / "add.onnx"
    path.write_bytes(model.build())
    facts = json.loads(run("inspect", str(path), "--fix", "b=1,2", "--json"))
    assert [each["name"] for each in facts["signature"]["inputs"]] == ["a"]
    assert facts["signature"]["fixed"][0]["values"] == [1, 2]
    assert "the input b is fixed at [1, 2]" in run("inspect", str(path), "--fix", "b=1,2")


def test_a_float_model_that_is_not_compiled_is_outlined(tmp_path: Path) -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", ["N", 4])
    product = model.node("MatMul", [x, model.constant([[1.0]] * 4, "float32")])
    model.output(model.node("Unique", [product]), "float32")
    path = tmp_path / "float.onnx"
    path.write_bytes(model.build())
    shown = " ".join(run("inspect", str(path)).split())
    assert shown.startswith("refused because 1 of 2 operators cannot be compiled: Unique; it is Unique #1")
    assert "input x float32 [N, 4]" in shown
    assert "1 MatMul" in shown
    refused = CliRunner().invoke(app, ["inspect", str(path), "--graph"])
    assert refused.exit_code != 0


def test_a_file_that_is_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(SAMPLE.read_bytes()[:1000])
    result = CliRunner().invoke(app, ["inspect", str(path)])
    assert result.exit_code != 0
