"""Tests of predictions by task against a running server: pictures, numbers and tables, and their errors."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support.compiled import EXAMPLES
from tests.support.serving import Served

URL = "/api/v1/models/digits/predict"
PICTURE = (EXAMPLES / "digits" / "7.png").read_bytes()


@pytest.fixture(scope="module", autouse=True)
def labels(served: Served) -> None:
    members = {"labels": [f"digit {index}" for index in range(10)], "task": "classify-images"}
    assert served.client.patch("/api/v1/models/digits/versions/1", json=members).is_success


def best(result: Any) -> str:
    return str(result["classes"][0]["label"])


def test_a_picture_gives_labels_with_scores(served: Served) -> None:
    found = served.client.post(URL, content=PICTURE, headers={"content-type": "image/png"}, params={"top": 2}).json()
    assert best(found) == "digit 7"
    assert len(found["classes"]) == 2
    assert served.client.post(URL, files={"file": ("7.png", PICTURE)}).json()["classes"][:2] == found["classes"]


def test_real_values_are_quantized(served: Served) -> None:
    """The input has the scale 1 / 128, so that black is 0 and white is 127 / 128."""
    values = [[0.0] * 256, [1.0] * 256]
    results = served.client.post(URL, json={"rows": values}).json()["results"]
    assert results[0] == served.client.post(URL, json={"inputs": {"image": values[0]}}).json()
    assert results[1] == served.client.post(URL, json={"values": values[1]}).json()
    assert results[0] != results[1]


def test_csv_is_a_table(served: Served) -> None:
    header, row = ",".join(f"p{index}" for index in range(256)), ",".join(["0"] * 256)
    body, headers = f"{header}\n{row}\n{row}\n", {"content-type": "text/csv"}
    results = served.client.post(URL, content=body, headers=headers).json()["results"]
    assert len(results) == 2
    assert served.client.post(URL, files={"file": ("rows.csv", body)}).json() == {"results": results}


@pytest.mark.parametrize(
    ("path", "members", "status", "detail"),
    [
        (URL, {"values": [1]}, 400, "1 values were given"),
        (URL, {"text": "a"}, 400, "the model has no input 'text'"),
        (URL, {"inputs": {"x": [1]}}, 400, "the inputs are 'x'"),
        ("/api/v1/models/absent/predict", {"values": [1]}, 404, "there is no model 'absent'"),
    ],
)
def test_errors_are_problem_documents(served: Served, path: str, members: Any, status: int, detail: str) -> None:
    answer = served.client.post(path, json=members)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]


def test_pictures_in_json_give_the_same_result(served: Served) -> None:
    encoded = base64.b64encode(PICTURE).decode()
    single = served.client.post(URL, content=PICTURE, headers={"content-type": "image/png"}, params={"top": 5}).json()
    assert len(single["classes"]) == 5
    for members in ({"image": encoded}, {"image": f"data:image/png;base64,{encoded}"}):
        assert served.client.post(URL, json=members, params={"top": 5}).json() == single
    several = served.client.post(URL, json={"image": [encoded, encoded]}, params={"top": 5}).json()
    assert several == {"results": [single, single]}
    broken = served.client.post(URL, json={"image": [encoded, encoded[:80]]})
    assert broken.status_code == 400
    assert broken.json()["detail"].startswith("input 1: ")
