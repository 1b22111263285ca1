"""Tests of the bodies of predictions by task."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from service.api.control.predictions.samples import MAX_SAMPLES, Sample, samples_of
from service.core.errors import InvalidInput, TooLarge, UnsupportedFormat
from service.runtime.table import Row

JPEG = b"\xff\xd8\xff\xe0"
WAV = b"RIFF\x24\0\0\0WAVEfmt "
BASE64 = b64encode(JPEG).decode()
JSON = "application/json; charset=utf-8"


@pytest.mark.parametrize("content_type", ["image/jpeg", "image/jpg", "", "application/octet-stream", "text/plain"])
def test_a_picture_is_recognized_whatever_its_type_is(content_type: str) -> None:
    assert samples_of(JPEG, content_type) == ([Sample(picture=JPEG)], False)


@pytest.mark.parametrize(
    ("members", "samples", "is_list"),
    [
        ({"text": "a"}, [Sample(text="a")], False),
        ({"text": ["a"]}, [Sample(text="a")], True),
        ({"values": [[1, 2]]}, [Sample(values=[[1, 2]])], False),
        ({"values": 1}, [Sample(values=1)], False),
        ({"inputs": {"x": [1]}}, [Sample(inputs={"x": [1]})], False),
        ({"text": "a", "text_pair": "b"}, [Sample(text="a", pair="b")], False),
        ({"text": ["a", "b"], "text_pair": ["c", "d"]}, [Sample(text="a", pair="c"), Sample(text="b", pair="d")], True),
        ({"rows": [[1], {"x": 2}, "a"]}, [Sample(values=[1]), Sample(inputs={"x": 2}), Sample(text="a")], True),
        (
            {"rows": [{"text": "a", "text_pair": "b"}, {"text": "c"}]},
            [Sample(text="a", pair="b"), Sample(text="c")],
            True,
        ),
        ({"rows": []}, [], True),
        ({"image": BASE64}, [Sample(picture=JPEG)], False),
        ({"image": [BASE64, BASE64]}, [Sample(picture=JPEG)] * 2, True),
        ({"sound": b64encode(WAV).decode()}, [Sample(picture=WAV)], False),
        ({"rows": [{"image": BASE64}, {"image": [1]}]}, [Sample(picture=JPEG), Sample(inputs={"image": [1]})], True),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, "", "application/x-www-form-urlencoded"])
def test_json_has_one_member(members: Any, samples: list[Sample], is_list: bool, content_type: str) -> None:
    assert samples_of(json.dumps(members).encode(), content_type) == (samples, is_list)


@pytest.mark.parametrize(
    ("body", "samples"),
    [
        (
            b"x,y\r\n1,2.5\r\n\r\n3,4\r\n",
            [Sample(row=Row(["x", "y"], ["1", "2.5"], 1)), Sample(row=Row(["x", "y"], ["3", "4"], 2))],
        ),
        (b'id,text\n1,"a, b"\n', [Sample(text="a, b")]),
        (b"text_pair,text\nb,a\n", [Sample(text="a", pair="b")]),
        (b"", []),
    ],
)
def test_csv_is_a_list_of_rows(body: bytes, samples: list[Sample]) -> None:
    assert samples_of(body, "text/csv") == (samples, True)


def test_plain_text_is_one_text() -> None:
    assert samples_of("\ufeffé".encode(), "text/plain; charset=utf-8") == ([Sample(text="é")], False)


@pytest.mark.parametrize(
    ("body", "content_type", "error"),
    [
        (b"{}", JSON, "the JSON has no member"),
        (b'{"text": 1}', JSON, "text is not a string, or a list of strings"),
        (b'{"text": ["a", 1]}', JSON, "text is not a string, or a list of strings"),
        (b'{"text": "a", "values": 1}', JSON, "the members 'text' and 'values'"),
        (b'{"text": "a", "text_pair": ["b"]}', JSON, "text_pair is not a string, as text is"),
        (b'{"text": ["a"], "text_pair": "b"}', JSON, "text_pair is not a list of strings"),
        (b'{"text": ["a"], "text_pair": ["b", "c"]}', JSON, "text has 1 elements, but text_pair has 2"),
        (b'{"text_pair": "b"}', JSON, "the member 'text_pair'"),
        (b'{"inputs": [1]}', JSON, "inputs is not an object"),
        (b'{"rows": 1}', JSON, "rows is not a list"),
        (b'{"rows": [1, null]}', JSON, "row 1 is null"),
        (b'{"values": 1, "inputs": {}}', JSON, "the members 'values', 'inputs'"),
        (b'{"picture": 1}', JSON, "the member 'picture'"),
        (b"[1]", JSON, "the JSON is not an object"),
        (b"{", JSON, "not well-formed JSON"),
        (b"[" * 100_000, JSON, "not well-formed JSON"),
        (b"x,y", JSON, "not well-formed JSON"),
        (b"\xff", JSON, "not well-formed JSON"),
        (b"", "", "the body is empty"),
        (b"\xff", "text/plain", "not UTF-8 text at byte 0"),
        (b'x\n"' + b"a" * 200_000, "text/csv", "line 2 of the table"),
        (b"id,text\n1\n", "text/csv", "row 1 of the table has no cell in the column 'text'"),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, content_type: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        samples_of(body, content_type)


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        ("audio/wav", "the Content-Type is 'audio/wav'"),
        ("application/x-www-form-urlencoded", "the Content-Type is 'application/x-www-form-urlencoded'"),
        ("", "the Content-Type is missing"),
    ],
)
def test_an_error_says_which_content_type_to_send(content_type: str, error: str) -> None:
    with pytest.raises(UnsupportedFormat, match=error) as raised:
        samples_of(b"RIFF", content_type)
    assert "text/csv" in str(raised.value.hint)


def test_the_number_of_samples_is_limited() -> None:
    with pytest.raises(TooLarge, match=f"{MAX_SAMPLES + 1} samples"):
        samples_of(json.dumps({"text": ["a"] * (MAX_SAMPLES + 1)}).encode(), JSON)
