"""Tests of predictions by task against a running server: pictures, numbers and tables, and their errors."""

from __future__ import annotations

import base64
import json
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


def test_clients_of_tensorflow_serving_get_real_values(served: Served) -> None:
    url, encoded = "/v1/models/digits", base64.b64encode(PICTURE).decode()
    # without a type, as the documentation of TensorFlow Serving uses curl
    asked = json.dumps({"instances": [{"b64": encoded}, [0.0] * 256]})
    form = {"content-type": "application/x-www-form-urlencoded"}
    found = served.client.post(f"{url}:predict", content=asked, headers=form).json()["predictions"]
    scores = served.client.post(URL, json={"values": [0.0] * 256}, params={"top": 10}).json()["classes"]
    assert max(found[1]) == scores[0]["score"]
    assert max(range(10), key=found[0].__getitem__) == 7
    for path, members in (
        (f"{url}/versions/1:predict", {"inputs": [{"b64": encoded}, [0.0] * 256]}),
        (f"{url}:predict", {"inputs": {"image": [{"b64": encoded}, [[[0.0]] * 16] * 16]}}),
    ):
        assert served.client.post(path, json=members).json() == {"outputs": found}
    assert served.client.post("/api/v1/models/digits/promote", json={"version": 1}).is_success
    promoted = served.client.post(f"{url}/labels/stable:predict", json={"instances": [[0.0] * 256]})
    assert promoted.json() == {"predictions": found[1:]}


def test_clients_of_tensorflow_serving_and_openai_find_a_model(served: Served) -> None:
    found = served.client.get("/v1/models/digits").json()
    state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert found["model_version_status"] == [state]
    assert (found["id"], found["object"]) == ("digits", "model")
    assert served.client.get("/v1/models").json()["data"][0]["id"] == "digits"
    assert served.client.get("/v1/models/digits/versions/1").json() == {"model_version_status": [state]}
    described = served.client.get("/v1/models/digits/versions/1/metadata").json()
    signature = described["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["image"]["dtype"] == "DT_FLOAT"
    assert served.client.get("/v1/models/digits/metadata").json()["metadata"] == described["metadata"]


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        (":predict", "{}", 400, "either instances or inputs"),
        (":predict", '{"instances": [[1]], "inputs": [[1]]}', 400, "either instances or inputs"),
        (":predict", "x=1", 400, "Invalid JSON"),
        (":predict", '{"instances": 1}', 400, "body.instances"),
        (":predict", '{"instances": [[1]], "signature_name": "x"}', 400, "no signature 'x'"),
        (":predict", '{"instances": [[1]]}', 400, "has shape [1, 16, 16, 1]"),
        ("/versions/9:predict", '{"instances": [[1]]}', 404, "has no version 9"),
        (":classify", "{}", 405, "does not accept POST"),
    ],
)
def test_tensorflow_serving_errors_have_the_member_error(
    served: Served, path: str, body: str, status: int, detail: str
) -> None:
    answer = served.client.post(f"/v1/models/digits{path}", content=body)
    assert answer.status_code == status, answer.text
    assert detail in answer.json()["error"]
