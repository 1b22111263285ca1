"""Tests of the bodies of predictions by task."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.api.control.predicting import MAX_SAMPLES, Sample, samples_of
from service.core.errors import InvalidInput, TooLarge, UnsupportedFormat

JPEG = b"\xff\xd8\xff\xe0"
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
        ({"rows": [[1], {"x": 2}, "a"]}, [Sample(values=[1]), Sample(inputs={"x": 2}), Sample(text="a")], True),
        ({"rows": []}, [], True),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, "", "application/x-www-form-urlencoded"])
def test_json_has_one_member(members: Any, samples: list[Sample], is_list: bool, content_type: str) -> None:
    assert samples_of(json.dumps(members).encode(), content_type) == (samples, is_list)


@pytest.mark.parametrize(
    ("body", "samples"),
    [
        (b"x,y\r\n1,2.5\r\n\r\n3,4\r\n", [Sample(values=[1.0, 2.5]), Sample(values=[3.0, 4.0])]),
        (b'id,text\n1,"a, b"\n', [Sample(text="a, b")]),
        (b"", []),
    ],
)
def test_csv_is_a_list_of_rows(body: bytes, samples: list[Sample]) -> None:
    assert samples_of(body, "text/csv") == (samples, True)


def test_plain_text_is_one_text() -> None:
    assert samples_of("\ufeffé".encode(), "text/plain; charset=utf-8") == ([Sample(text="é")], False)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{}", JSON),
        (b'{"text": 1}', JSON),
        (b'{"text": "a", "values": 1}', JSON),
        (b'{"picture": 1}', JSON),
        (b"[1]", JSON),
        (b"{", JSON),
        (b"[" * 100_000, JSON),
        (b"\xff", JSON),
        (b"\xff", "text/plain"),
        (b"x\na\n", "text/csv"),
        (b"id,text\n1\n", "text/csv"),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(InvalidInput):
        samples_of(body, content_type)


def test_a_body_of_another_type_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="audio/wav"):
        samples_of(b"RIFF", "audio/wav")


def test_the_number_of_samples_is_limited() -> None:
    with pytest.raises(TooLarge, match=f"{MAX_SAMPLES + 1} samples"):
        samples_of(json.dumps({"text": ["a"] * (MAX_SAMPLES + 1)}).encode(), JSON)
