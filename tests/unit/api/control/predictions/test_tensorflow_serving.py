"""TensorFlow Serving's requests and responses, without a server."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
import pytest

from service.api.control.predictions.predicting import Computed, Described
from service.api.control.predictions.samples import MAX_SAMPLES, Sample
from service.api.control.predictions.tensorflow_serving import (
    answer_columns,
    answer_rows,
    columns_in,
    describe,
    rows_in,
    status,
)
from service.core.errors import InvalidInput, TooLarge
from service.core.models.metadata import ModelMetadata
from service.core.models.model import VersionState
from service.core.models.signature import ModelSignature, Quantization, TensorSpec

FILE = {"b64": b64encode(b"GIF89a").decode()}
X = TensorSpec("x", "INT8", (1, 2), Quantization(0.5, 0))
Y = TensorSpec("y", "FP32", (1, 3))


def model(*inputs: TensorSpec) -> Described:
    return Described(ModelSignature(inputs, (X, Y)), ModelMetadata())


def computed(**outputs: Any) -> Computed:
    return Computed({name: np.asarray(value) for name, value in outputs.items()}, model(X), {})


@pytest.mark.parametrize(
    ("instance", "sample"),
    [
        ([1, 2], Sample(values=[1, 2])),
        (0.5, Sample(values=0.5)),
        ("a text", Sample(text="a text")),
        ({"text": "a", "text_pair": "b"}, Sample(text="a", pair="b")),
        (FILE, Sample(picture=b"GIF89a")),
        ({"x": [1, 2], "y": FILE}, Sample(inputs={"x": [1, 2], "y": b"GIF89a"})),
        ({"text": [1, 2]}, Sample(inputs={"text": [1, 2]})),
    ],
)
def test_an_instance_is_a_sample(instance: Any, sample: Sample) -> None:
    assert rows_in([instance, instance]) == [sample, sample]


def test_columns_are_split_into_rows() -> None:
    assert columns_in([[1, 2], [3, 4]], model(X)) == ([Sample(values=[1, 2]), Sample(values=[3, 4])], True)
    both = {"x": [[1, 2], [3, 4]], "y": [[5], [6]]}
    rows = [Sample(inputs={"x": [1, 2], "y": [5]}), Sample(inputs={"x": [3, 4], "y": [6]})]
    assert columns_in(both, model(X, Y)) == (rows, True)
    assert columns_in(FILE, model(X)) == ([Sample(picture=b"GIF89a")], True)
    assert columns_in({"x": [FILE]}, model(X)) == ([Sample(inputs={"x": b"GIF89a"})], True)


def test_a_model_without_a_batch_takes_one_input() -> None:
    whole = TensorSpec("x", "FP32", (2, 2))
    assert columns_in([[1, 2], [3, 4]], model(whole)) == ([Sample(values=[[1, 2], [3, 4]])], False)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"x": [[1]], "y": [[1], [2]]}, "'x' has 1, 'y' has 2"),
        ({}, "there are no inputs"),
        ([], "inputs is empty"),
        ([{"b64": 1}], r"inputs\[0\] is not a string"),
        ([{"x": {"b64": "?"}}], r"inputs\[0\].x is not base64"),
    ],
)
def test_an_error_names_the_input(inputs: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        columns_in(inputs, model(X))


def test_the_number_of_rows_is_limited() -> None:
    with pytest.raises(TooLarge):
        rows_in([0] * (MAX_SAMPLES + 1))
    with pytest.raises(TooLarge):
        columns_in([0] * (MAX_SAMPLES + 1), model(X))
    with pytest.raises(InvalidInput, match="instances is empty"):
        rows_in([])


def test_responses_have_the_form_of_the_request() -> None:
    one = [computed(y=[[1.0, 2.0]]), computed(y=[[3.0, float("nan")]])]
    assert answer_rows(one) == {"predictions": [[1.0, 2.0], [3.0, None]]}
    assert answer_columns(one, True) == {"outputs": [[1.0, 2.0], [3.0, None]]}
    assert answer_columns(one[:1], False) == {"outputs": [1.0, 2.0]}
    two = [computed(x=[[1]], y=[[2]]), computed(x=[[3]], y=[[4]])]
    assert answer_rows(two) == {"predictions": [{"x": [1], "y": [2]}, {"x": [3], "y": [4]}]}
    assert answer_columns(two, True) == {"outputs": {"x": [[1], [3]], "y": [[2], [4]]}}


def test_quantized_tensors_are_described_as_real() -> None:
    found = describe("m", "2", model(X))
    assert found["model_spec"] == {"name": "m", "signature_name": "", "version": "2"}
    signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert [each["size"] for each in signature["inputs"]["x"]["tensor_shape"]["dim"]] == ["-1", "2"]


def test_a_version_is_available_if_predictions_reach_it() -> None:
    assert status(1, VersionState.READY, "", False)["state"] == "AVAILABLE"
    assert status(1, VersionState.BUILDING, "queued", False)["state"] == "LOADING"
    elsewhere = status(1, VersionState.ELSEWHERE, "built for aarch64", False)
    expected = {"error_code": "UNKNOWN", "error_message": "built for aarch64"}
    assert (elsewhere["state"], elsewhere["status"]) == ("END", expected)
    assert status(1, VersionState.ELSEWHERE, "", True)["state"] == "AVAILABLE"
