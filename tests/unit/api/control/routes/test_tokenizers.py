"""Tests of the tokenizers of versions: upload, description, download and garbage collection."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.digest import digest_of
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.workers.garbage import collect_garbage
from tests.support.control_plane import ControlPlane, problem

URL = "/api/v1/models/digits/versions/1"
TOKENIZER = b'{"version": "1.0", "model": {"type": "WordPiece"}}'


def text(plane: ControlPlane) -> Any:
    found = plane.client.get(URL).json()["metadata"]["text"]
    return {name: value for name, value in found.items() if value is not None}


def collect(plane: ControlPlane) -> None:
    services = plane.services
    collect_garbage(services.layout, services.builds, services.models, services.crashes, services.verifications, 0)


def test_an_uploaded_tokenizer_is_stored_and_downloaded(plane: ControlPlane) -> None:
    plane.push()
    answer = plane.client.put(f"{URL}/tokenizer", content=TOKENIZER)
    assert answer.status_code == 200, answer.text
    assert text(plane) == {"tokenizer": digest_of(TOKENIZER), "tokenizer_bytes": len(TOKENIZER)}
    assert plane.client.get(f"{URL}/tokenizer").content == TOKENIZER


def test_the_other_members_are_set_by_themselves(plane: ControlPlane) -> None:
    plane.push()
    plane.client.put(f"{URL}/tokenizer", content=TOKENIZER)
    answer = plane.client.patch(URL, json={"task": "embed", "text": {"pooling": "mean", "normalize": True}})
    assert answer.json()["metadata"]["task"] == "embed"
    expected = {"tokenizer": digest_of(TOKENIZER), "tokenizer_bytes": len(TOKENIZER), "pooling": "mean"}
    assert text(plane) == expected | {"normalize": True}


def test_a_stored_blob_can_be_named_as_the_tokenizer(plane: ControlPlane) -> None:
    plane.push()
    digest = digest_of(TOKENIZER)
    missing = plane.client.patch(URL, json={"text": {"tokenizer": digest}})
    problem(missing, 404, "not_found")
    plane.client.put(f"/api/v1/blobs/{digest}", content=TOKENIZER)
    plane.client.patch(URL, json={"text": {"tokenizer": digest, "tokenizer_bytes": 7}})
    assert text(plane) == {"tokenizer": digest, "tokenizer_bytes": len(TOKENIZER)}


def test_the_tokenizer_is_kept_as_long_as_a_version_has_it(plane: ControlPlane) -> None:
    plane.push()
    plane.client.put(f"{URL}/tokenizer", content=TOKENIZER)
    other = TOKENIZER + b" "
    plane.client.put(f"{URL}/tokenizer", content=other)
    collect(plane)
    assert not plane.services.layout.blobs.exists(digest_of(TOKENIZER))
    assert plane.client.get(f"{URL}/tokenizer").content == other
    plane.client.delete("/api/v1/models/digits")
    collect(plane)
    assert not plane.services.layout.blobs.exists(digest_of(other))


@pytest.mark.parametrize(
    ("body", "status", "code"), [(b"\x80pickle", 415, "unsupported_format"), (b"", 400, "invalid_input")]
)
def test_a_body_that_is_not_a_tokenizer_is_refused(plane: ControlPlane, body: bytes, status: int, code: str) -> None:
    plane.push()
    problem(plane.client.put(f"{URL}/tokenizer", content=body), status, code)


def test_a_tokenizer_that_is_too_large_is_refused(plane: ControlPlane) -> None:
    plane.push()
    answer = plane.client.put(
        f"{URL}/tokenizer", content=b"{", headers={"content-length": str(MAX_TOKENIZER_BYTES + 1)}
    )
    problem(answer, 413, "too_large")


def test_a_version_without_a_tokenizer_has_none_to_download(plane: ControlPlane) -> None:
    plane.push()
    problem(plane.client.get(f"{URL}/tokenizer"), 404, "not_found")
    problem(plane.client.put("/api/v1/models/other/versions/1/tokenizer", content=TOKENIZER), 404, "not_found")
