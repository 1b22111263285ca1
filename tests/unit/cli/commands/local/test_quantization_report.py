"""Tests of the report of `octet quantize` on the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from service.cli.commands.local.quantization_report import show
from service.cli.output import Output

REPORT: dict[str, Any] = {
    "output": "m.int8.onnx",
    "bytes": {"quantized": 1_000, "float": 4_000, "source": 3_900},
    "quantized": 7,
    "wide": ["a"],
    "bfloat16": [],
    "kept": ["b", "c"],
    "method": "minmax",
    "inputs": 16,
    "same_class": {"share": 0.75, "standard_error": 0.108, "right": 12, "inputs": 16},
    "tensors_db": {f"t{number}": 40.0 - number for number in range(12)} | {"exact": None},
    "outputs_db": {"y": 21.25},
    "float": [{"operators": 2, "op_type": "Resize", "reason": "cubic"}],
}


def show_lines(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    show(Output(as_json=False), document)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_sizes_the_layers_and_the_accuracy_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show_lines(REPORT, capsys)
    assert lines[0] == (
        "m.int8.onnx: 1,000 bytes, 4.00 times smaller than the float model as ONNX (4,000 bytes); "
        "7 operators in integers, 1 of 16x8, 2 kept in float, by minmax of 16 inputs"
    )
    assert lines[1] == "measured on the calibration inputs; --validate measures on others:"
    assert lines[2] == "same class 12 of 16: 75.0 % (standard error 10.8)"
    assert lines[-1] == "in float 2 Resize: cubic"


def test_the_noisiest_tensors_come_first_and_the_others_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show_lines(REPORT, capsys)
    rows = [line for line in lines if line.endswith((" dB", "no noise"))]
    assert rows == ["output y 21.2 dB", *(f"t{number} {40 - number:.1f} dB" for number in range(11, 1, -1))]


def test_an_older_server_sends_the_size_of_the_models_own_file(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show_lines(REPORT | {"bytes": {"quantized": 2_000, "float": 1_000}}, capsys)
    assert "2,000 bytes, 2.00 times larger than the float model's file" in lines[0]


@pytest.mark.parametrize(("weights", "how"), [(None, "in integers"), (4, "with weights of 4 bits")])
def test_without_calibration_only_matrix_products_are_counted(
    weights: int | None, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {name: REPORT[name] for name in ("output", "bytes")} | {"layers": ["a", "b"], "weights": weights}
    (line,) = show_lines(document, capsys)
    assert line.endswith(f"; 2 matrix products {how}")


@pytest.mark.parametrize(
    ("met", "budget_met", "note"),
    [
        (False, False, "No mixture of layers is within 5ms (5.00 ms): all layers that can be are in integers."),
        (True, True, "This mixture of layers is within 5ms (5.00 ms)."),
        (True, False, "this one loses the fewest answers."),
    ],
)
def test_the_result_of_a_latency_budget_is_explained(
    met: bool, budget_met: bool, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    point = {"kept": ["b"], "wide": [], "bfloat16": [], "share": 0.01, "output_db": 30.0, "latency_ms": 4.5}
    latency = {"asked": "5ms", "limit_ms": 5.0, "met": met, "budget_met": budget_met}
    costs = {"layers_db": {"b": 12.0}, "curve": [point], "latency_budget": latency}
    lines = show_lines(REPORT | {"sensitivity": costs}, capsys)
    assert "1 0 1.0 % 30.0 dB 4.50 ms" in lines
    assert any(line.endswith(note) for line in lines)


def test_held_out_inputs_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show_lines(REPORT | {"held_out": {"data": "test", "inputs": 500}}, capsys)
    assert lines[1] == "measured on 500 held-out inputs of test:"
