"""Tests of predictions of many inputs: their order, their failures, and the formats of results."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from service.cli.output import Output
from service.cli.predicting.formats import OutputFormat
from service.cli.predicting.inputs import Item
from service.cli.predicting.predictions import Predictor, predict_all, rows_of, show_results
from service.core.errors import InvalidInput, OctetError, QueueFull
from service.core.models.metadata import NOTHING
from service.core.models.signature import ModelSignature, Quantization, TensorSpec

CLASSES = {"classes": [{"label": "cat", "score": 0.75}, {"label": "dog", "score": 0.25}]}
SIGNATURE = ModelSignature(
    (TensorSpec("x", "INT8", (1, 2), Quantization(0.5, 0)),), (TensorSpec("y", "INT8", (1, 2), Quantization(2.0, 0)),)
)


class Server:
    """Answers each request with its input."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    def infer(self, name: str, names: list[str], inputs: list[Any], version: int | None) -> tuple[dict[str, Any], Any]:
        if self.failures:
            self.failures -= 1
            raise QueueFull("the queue is full", retry_after_s=0.001)
        return {}, {"y": inputs[0]}


def predictor(server: Any, signature: ModelSignature = SIGNATURE) -> Predictor:
    return Predictor(server, "m", None, signature, NOTHING)


def test_values_are_quantized_and_results_are_real() -> None:
    result = predictor(Server()).predict(Item("a", values=[1.0, -2.0]))
    assert result["outputs"] == [{"name": "y", "shape": [1, 2], "values": [[4.0, -8.0]]}]
    assert predictor(Server()).predict(Item("a", values={"x": [1.0, -2.0]})) == result


def test_a_text_is_not_sent_to_a_model_of_tensors() -> None:
    with pytest.raises(InvalidInput, match=r"'cat\.jgp' is not a file, and m does not take text"):
        predictor(Server()).predict(Item("cat.jgp", text="cat.jgp"))


def test_a_full_queue_is_tried_again() -> None:
    server = Server(failures=3)
    assert "outputs" in predictor(server).predict(Item("a", values=[0, 0]))
    with pytest.raises(QueueFull):
        predictor(Server(failures=99)).predict(Item("a", values=[0, 0]))


@pytest.mark.parametrize("values", [{"z": [1, 2]}, [1, 2]])
def test_an_item_has_to_name_the_inputs(values: Any) -> None:
    two = ModelSignature((*SIGNATURE.inputs, TensorSpec("z", "FP32", (1,))), SIGNATURE.outputs)
    with pytest.raises(InvalidInput, match=r"x, z|model's inputs"):
        predictor(Server(), two).predict(Item("a", values=values))


def test_results_keep_the_order_of_the_items_and_a_failure_does_not_end_them() -> None:
    first_may_end = threading.Event()

    def predict(item: Item) -> dict[str, Any]:
        if item.name == "0":
            first_may_end.wait(10)
        if item.name == "3":
            first_may_end.set()
            raise InvalidInput("it is damaged")
        return {"name": item.name}

    results = list(predict_all(predict, (Item(str(index)) for index in range(30)), parallel=4))
    assert [item.name for item, _ in results] == [str(index) for index in range(30)]
    assert [item.name for item, result in results if isinstance(result, OctetError)] == ["3"]


def test_inputs_are_read_only_as_fast_as_they_are_predicted() -> None:
    taken = 0

    def items() -> Iterator[Item]:
        nonlocal taken
        for index in range(1000):
            taken += 1
            yield Item(str(index))

    results = predict_all(lambda item: {}, items(), parallel=2)
    next(results)
    assert taken <= 6


def show(format: OutputFormat, capsys: pytest.CaptureFixture[str], *results: Any) -> tuple[int, str, str]:
    items = [(Item(name), result) for name, result in zip("abc", results, strict=False)]
    failures = show_results(Output(as_json=False), items, format)
    shown = capsys.readouterr()
    return failures, shown.out, shown.err


def test_a_table_has_a_line_for_each_input(capsys: pytest.CaptureFixture[str]) -> None:
    failures, out, err = show(OutputFormat.TABLE, capsys, CLASSES, InvalidInput("it is damaged"), {"score": 0.5})
    assert failures == 1
    assert "cat 0.75, dog 0.25" in out
    assert "0.5" in out.splitlines()[-1]
    assert "b: it is damaged" in err


def test_json_has_a_document_for_each_input(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = show(OutputFormat.JSONL, capsys, CLASSES)
    assert json.loads(out) == {"input": "a", **CLASSES}


def test_csv_has_a_line_for_each_class(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = show(OutputFormat.CSV, capsys, CLASSES, CLASSES)
    assert out.splitlines() == ["input,label,score", "a,cat,0.75", "a,dog,0.25", "b,cat,0.75", "b,dog,0.25"]


def test_csv_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = show(OutputFormat.CSV, capsys, {"classes": [{"label": "a\x1b[2J\n,b", "score": 1.0}]})
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


def test_rows_of_numbers_have_a_column_each() -> None:
    outputs = {"outputs": [{"name": "y", "shape": [1, 2], "values": np.array([[1, 2]]).tolist()}]}
    assert rows_of(outputs) == [{"y[0]": 1, "y[1]": 2}]
    assert rows_of({"embedding": [0.5, 1.0]}) == [{"0": 0.5, "1": 1.0}]
