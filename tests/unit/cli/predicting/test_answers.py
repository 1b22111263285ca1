"""Tests of formatting a model's outputs for people."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from service.cli.output import Output
from service.cli.predicting.answers import Answer, bars, is_classification, show_answer, top
from service.core.errors import InvalidInput
from service.core.models.signature import Quantization, TensorSpec


def test_classes_are_ordered_by_score_and_then_by_number() -> None:
    assert [entry["class"] for entry in top(np.array([[1, 9, 4, 9]]), None, count=3)] == [1, 3, 2]


def test_unsigned_values_are_ordered_by_size() -> None:
    assert top(np.array([0, 255], np.uint8), None)[0]["class"] == 1


def test_classes_are_named_by_their_labels() -> None:
    assert top(np.array([0.1, 0.9]), ["cat", "dog"])[0] == {"class": 1, "label": "dog", "value": 0.9}


def test_too_few_labels_are_refused() -> None:
    with pytest.raises(InvalidInput, match="1 labels for 2 classes"):
        top(np.array([0.1, 0.9]), ["cat"])


QUANTIZED = Answer(
    "m", {"y": np.array([[-128, 127]], np.int8)}, [TensorSpec("y", "INT8", (1, 2), Quantization(1 / 256, -128))], 0.0
)


def test_an_answer_is_shown_and_saved_in_real_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(Output(as_json=True), QUANTIZED, save=tmp_path / "y.npy")
    shown = json.loads(capsys.readouterr().out)
    assert shown["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.0, 255 / 256]}]
    assert shown["top"][0] == {"class": 1, "label": "1", "value": 255 / 256}
    assert np.load(tmp_path / "y.npy").tolist() == [[0.0, 255 / 256]]


def test_unused_labels_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(Output(as_json=False), replace(QUANTIZED, labels=("no", "yes", "perhaps")))
    assert "the model's labels are not shown: it has 3 labels for 2 classes" in capsys.readouterr().err
    show_answer(Output(as_json=False), replace(QUANTIZED, labels=("no", "yes")))
    assert capsys.readouterr().err == ""


def test_the_models_labels_name_its_classes_if_their_number_fits() -> None:
    for labels, expected in ((("no", "yes"), "yes"), (("no", "yes", "perhaps"), "1")):
        assert replace(QUANTIZED, labels=labels).dequantized().classes(None)[0]["label"] == expected
    assert replace(QUANTIZED, labels=("no", "yes")).classes(["a", "b"])[0]["label"] == "b"


def test_a_raw_answer_has_the_stored_integers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(Output(as_json=True), QUANTIZED, save=tmp_path / "y.npy", raw=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["outputs"] == [{"name": "y", "datatype": "INT8", "shape": [1, 2], "data": [-128, 127]}]
    assert shown["top"][0]["value"] == 127
    assert np.load(tmp_path / "y.npy").tolist() == [[-128, 127]]


@pytest.mark.parametrize(
    ("shape", "expected"), [((1, 10), True), ((10,), True), ((2, 10), False), ((1, 4, 4, 3), False), ((1, 1), False)]
)
def test_a_classification_has_one_score_for_each_class(shape: tuple[int, ...], expected: bool) -> None:
    assert is_classification(np.zeros(shape)) is expected


def test_an_output_that_is_not_a_classification_has_no_best_classes() -> None:
    spec = TensorSpec("boxes", "FP32", (1, 4, 4))
    assert Answer("m", {"boxes": np.zeros((1, 4, 4), np.float32)}, [spec], 0.0).classes(None) == []


def test_the_bar_is_proportional_to_the_share() -> None:
    assert _printed([0.5, 0.25]) == [("0", 12, "50.0%"), ("1", 6, "25.0%")]


def test_other_scores_are_scaled_between_the_lowest_and_the_highest() -> None:
    assert _printed([30.0, 20.0, 10.0]) == [("0", 24, "30"), ("1", 12, "20"), ("2", 0, "10")]


def test_equal_scores_have_a_bar_too() -> None:
    assert _printed([7.0, 7.0]) == [("0", 0, "7"), ("1", 0, "7")]


def _printed(values: list[float]) -> list[tuple[str, int, str]]:
    """Returns (label, length of the bar, value) for each line."""
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(bars(top(np.array(values), None)))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return [(line.split()[0], line.count("█"), line.split()[-1]) for line in lines]
