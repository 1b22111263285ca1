"""Tests of extracting the file of a form whose bytes are split into chunks at any position."""

from __future__ import annotations

import asyncio
import io
import itertools
import zipfile
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.control.multipart import FormFile, file_in, is_form, only_file
from service.core.errors import InvalidInput

TYPE = "multipart/form-data; boundary=XX"


def part(content: bytes, disposition: str = 'form-data; name="file"; filename="m.tflite"') -> bytes:
    return b"--XX\r\nContent-Disposition: " + disposition.encode() + b"\r\n\r\n" + content + b"\r\n"


def read(*chunks: bytes, content_type: str = TYPE) -> bytes:
    async def arrive() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def collect() -> bytes:
        return b"".join([data async for data in only_file(arrive(), content_type)])

    return asyncio.run(collect())


def test_the_file_of_a_form_is_read() -> None:
    assert read(part(b"model") + b"--XX--\r\n") == b"model"


@given(st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=6))
def test_the_body_may_be_split_anywhere(content: bytes, cuts: Sequence[int]) -> None:
    body = part(content.replace(b"--XX", b"")) + b"--XX--\r\n"
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = [body[start:end] for start, end in itertools.pairwise(edges)]
    assert read(*chunks) == content.replace(b"--XX", b"")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (part(b"a") + part(b"b") + b"--XX--\r\n", "more than one file"),
        (part(b"digits", 'form-data; name="name"') + part(b"a") + b"--XX--\r\n", "not a file"),
        (part(b"a")[:-3], "cut short"),
        (part(b"a"), "cut short"),
        (b"--XX--\r\n", "no file"),
        (b"", "cut short"),
        (b"not a form at all", "malformed"),
        (b"--XX\r\nA" + b"a" * 100_000 + b": b\r\n\r\n", "malformed"),
    ],
)
def test_other_bodies_are_refused(body: bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(body)


def test_a_form_without_a_boundary_is_refused() -> None:
    with pytest.raises(InvalidInput, match="boundary"):
        read(part(b"a"), content_type="multipart/form-data")


def test_forms_are_recognized() -> None:
    assert is_form("Multipart/Form-Data; boundary=x")
    assert not is_form("application/x-www-form-urlencoded")
    assert not is_form("")


def named(name: str, content: bytes) -> bytes:
    return part(content, f'form-data; name="files"; filename="{name}"')


@given(st.binary(max_size=60), st.lists(st.integers(0, 400), max_size=6))
def test_the_files_of_a_folder_become_an_archive(content: bytes, cuts: Sequence[int]) -> None:
    content = content.replace(b"--XX", b"")
    body = named("config.json", b"{}") + named("onnx/model.onnx", content) + b"--XX--\r\n"
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    data = read(*(body[start:end] for start, end in itertools.pairwise(edges)))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "config.json": b"{}",
            "onnx/model.onnx": content,
        }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (named("a", b"") + named("a", b""), "twice"),
        (named("../a", b""), "not the name of a file in a folder"),
        (named("/a", b""), "not the name of a file in a folder"),
        (named("x" * 2000, b""), "not the name of a file in a folder"),
        (named("a", b"") + part(b"b"), "more than one file"),
        (part(b"b") + named("a", b""), "more than one file"),
        (named("a", b"") + part(b"x", 'form-data; name="files"'), "not a file"),
    ],
)
def test_other_files_of_a_folder_are_refused(body: bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(body + b"--XX--\r\n")


@pytest.mark.parametrize(
    ("name", "declared", "media_type"),
    [
        ("review.txt", "text/plain", "text/plain"),
        ("review.txt", "", "text/plain"),
        ("wine.CSV", "application/octet-stream", "text/csv"),  # as curl sends it
        ("wine.txt", "text/csv; header=present", "text/csv; header=present"),
        ("rows.json", "application/octet-stream", "application/json"),
        ("cat.jpg", "image/jpeg", "image/jpeg"),
        ("model.onnx", "", ""),
    ],
)
def test_the_type_of_a_file_is_declared_or_follows_from_its_name(name: str, declared: str, media_type: str) -> None:
    kind = f"Content-Type: {declared}\r\n" if declared else ""
    head = f'--XX\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n{kind}\r\n'
    assert file_in(head.encode() + b"a,b\r\n--XX--\r\n", TYPE) == FormFile(b"a,b", media_type)
