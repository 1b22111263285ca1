"""Tests of the results of models by task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.signature import Quantization, TensorSpec
from service.core.models.task import Activation, Task
from service.core.models.text import Pooling, Side, TextProcessing
from service.runtime.results import activated, real_values, result_of, stored_values

LOGITS = {"logits": np.array([[0.0, 2.0, -1.0]], np.float32)}
TOKENS = np.array([[[1, 2], [3, 5], [9, 9]]], np.float32)


def test_quantized_outputs_become_real() -> None:
    spec = TensorSpec("y", "INT8", (1, 2), Quantization(0.5, -1))
    assert real_values({"y": np.array([[-1, 3]], np.int8)}, [spec])["y"].tolist() == [[0.0, 2.0]]


def test_classes_have_labels_and_scores() -> None:
    metadata = ModelMetadata(("a", "b", "c"), task=Task.CLASSIFY_IMAGES, activation=Activation.SOFTMAX)
    (best, second) = result_of(LOGITS, metadata, top=2)["classes"]
    assert (best["label"], second["label"]) == ("b", "a")
    assert best["score"] == pytest.approx(np.exp(2) / (1 + np.exp(2) + np.exp(-1)), rel=1e-12)


def test_labels_alone_make_a_classifier_whose_outputs_are_the_scores() -> None:
    assert result_of(LOGITS, ModelMetadata(("a", "b", "c")), top=1) == {"classes": [{"label": "b", "score": 2.0}]}
    assert "outputs" in result_of(LOGITS, ModelMetadata(("a", "b")))


def test_classes_without_labels_have_numbers() -> None:
    assert result_of(LOGITS, ModelMetadata(task=Task.CLASSIFY), top=1)["classes"][0]["label"] == "1"


def test_outputs_without_a_task_are_shown_whole() -> None:
    (output,) = result_of({"y": np.array([[1.5, 2]], np.float32)}, NOTHING)["outputs"]
    assert output == {"name": "y", "shape": [1, 2], "values": [[1.5, 2.0]]}


def test_values_that_json_cannot_contain_are_none() -> None:
    values = np.array([[np.nan, 1, np.inf]], np.float32)
    assert result_of({"y": values}, NOTHING)["outputs"][0]["values"] == [[None, 1.0, None]]
    assert result_of({"y": np.array([2, 3], np.int8)}, NOTHING)["outputs"][0]["values"] == [2, 3]
    with pytest.raises(InvalidInput, match="not finite"):
        result_of({"y": values}, ModelMetadata(task=Task.CLASSIFY))


@pytest.mark.parametrize(
    ("pooling", "expected"), [(Pooling.MEAN, [2, 3.5]), (Pooling.CLS, [1, 2]), (Pooling.LAST, [3, 5])]
)
def test_an_embedding_is_pooled_over_the_tokens_of_the_text(pooling: Pooling, expected: list[float]) -> None:
    metadata = ModelMetadata(task=Task.EMBED, text=TextProcessing(pooling=(pooling,)))
    assert result_of({"h": TOKENS}, metadata, tokens=2) == {"embedding": expected}


def test_padding_may_come_first() -> None:
    text = TextProcessing(pooling=(Pooling.CLS,), padding_side=Side.LEFT)
    assert result_of({"h": TOKENS}, ModelMetadata(task=Task.EMBED, text=text), tokens=2) == {"embedding": [3, 5]}


def test_an_embedding_is_normalized() -> None:
    metadata = ModelMetadata(task=Task.EMBED, text=TextProcessing(normalize=True, output="pooled"))
    outputs = {"h": TOKENS, "pooled": np.array([[3, 4]], np.float32)}
    assert result_of(outputs, metadata)["embedding"] == pytest.approx([0.6, 0.8])


def test_tokens_without_a_pooling_are_refused() -> None:
    with pytest.raises(InvalidInput, match="has no pooling"):
        result_of({"h": TOKENS}, ModelMetadata(task=Task.EMBED))


def test_a_reranker_has_one_score() -> None:
    metadata = ModelMetadata(task=Task.RERANK, activation=Activation.SIGMOID)
    assert result_of({"y": np.zeros((1, 1), np.float32)}, metadata) == {"score": 0.5}


def test_spans_need_the_text() -> None:
    with pytest.raises(InvalidInput, match="need the text itself"):
        result_of({"y": TOKENS}, ModelMetadata(task=Task.CLASSIFY_TOKENS))


def test_boxes_of_tflite_are_sorted_and_limited() -> None:
    outputs = {
        "boxes": np.array([[[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 1, 1], [0, 0, 1, 1]]], np.float32),
        "classes": np.array([[0, 1, 1]], np.float32),
        "scores": np.array([[0.6, 0.9, 0.1]], np.float32),
        "count": np.array([3], np.float32),
    }
    metadata = ModelMetadata(("cat", "dog"), task=Task.DETECT)
    first, second = result_of(outputs, metadata)["boxes"]
    assert (first["label"], second["label"]) == ("dog", "cat")
    sides = [second[name] for name in ("left", "top", "right", "bottom")]
    assert sides == pytest.approx([0.2, 0.1, 0.4, 0.3])
    assert len(result_of(outputs, metadata, top=1)["boxes"]) == 1


def test_boxes_of_detr_are_converted_to_corners() -> None:
    outputs = {
        "logits": np.array([[[9, 0, 0], [0, 0, 9]]], np.float32),  # the second query finds no object
        "pred_boxes": np.array([[[0.5, 0.5, 0.2, 0.4], [0, 0, 1, 1]]], np.float32),
    }
    (box,) = result_of(outputs, ModelMetadata(("cat", "dog"), task=Task.DETECT))["boxes"]
    assert box["label"] == "cat"
    assert [box[name] for name in ("left", "top", "right", "bottom")] == pytest.approx([0.4, 0.3, 0.6, 0.7])


def test_other_outputs_are_not_taken_for_boxes() -> None:
    with pytest.raises(InvalidInput, match="are not boxes"):
        result_of({"y": np.zeros((1, 3), np.float32)}, ModelMetadata(task=Task.DETECT))


def test_a_large_logit_does_not_overflow() -> None:
    extreme = np.array([-1e30, 0, 1e30])
    assert activated(extreme, Activation.SIGMOID).tolist() == [0, 0.5, 1]
    assert activated(extreme, Activation.SOFTMAX).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("spec", "values", "expected"),
    [
        (TensorSpec("x", "INT8", (1, 2), Quantization(0.5, -1)), [1.25, 1000], [[1, 127]]),  # 2.5 rounds to 2
        (TensorSpec("x", "FP32", (-1, 2)), [[1, 2]], [[1.0, 2.0]]),
        (TensorSpec("x", "INT64", (1, 2)), [7, 8], [[7, 8]]),
        (TensorSpec("x", "BOOL", (2,)), [0, 1], [False, True]),
    ],
)
def test_real_values_become_stored_ones(spec: TensorSpec, values: Any, expected: Any) -> None:
    stored = stored_values(values, spec)
    assert (stored.tolist(), stored.dtype) == (expected, spec.dtype)


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("FP32", [1, 2, 3]),
        ("FP32", "x"),
        ("FP32", {"a": 1}),
        ("INT8", [1.5, 0]),
        ("INT8", [300, 0]),
        ("UINT8", [-1, 0]),
        ("INT8", [float("nan"), 0]),
    ],
)
def test_values_that_do_not_fit_are_refused(datatype: str, values: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        stored_values(values, TensorSpec("x", datatype, (1, 2)))
    assert refused.value.tensor == "x"
