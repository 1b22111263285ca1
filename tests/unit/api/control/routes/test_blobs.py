from __future__ import annotations

from collections.abc import Iterator

from service.cache import MIN_AGE_S
from service.core.digest import digest_of
from tests.support.blobs import age_blob
from tests.support.control_plane import ControlPlane, problem

DATA = b"a file of some kind"
URL = f"/api/v1/blobs/{digest_of(DATA)}"


def left_over(plane: ControlPlane) -> list[str]:
    """Returns the names of all files in the store, except those that every store has."""
    store = plane.services.layout.root
    return [path.name for path in store.rglob("*") if path.is_file() and path.name not in ("index.json", "oci-layout")]


def test_a_missing_blob(plane: ControlPlane) -> None:
    assert plane.client.head(URL).status_code == 404


def test_a_stored_blob_is_found_with_its_size(plane: ControlPlane) -> None:
    assert plane.client.put(URL, content=DATA).status_code == 201
    response = plane.client.head(URL)
    assert response.status_code == 200
    assert response.headers["content-length"] == str(len(DATA))
    assert response.headers["etag"] == f'"{digest_of(DATA)}"'


def test_a_blob_reported_as_stored_is_kept_for_a_push(plane: ControlPlane) -> None:
    plane.client.put(URL, content=DATA)
    layout = plane.services.layout
    age_blob(layout.root, digest_of(DATA), 2 * MIN_AGE_S)
    assert plane.client.head(URL).status_code == 200
    assert layout.collect_garbage().digests == ()


def test_the_response_describes_the_stored_blob(plane: ControlPlane) -> None:
    response = plane.client.put(URL, content=DATA)
    assert response.json() == {"digest": digest_of(DATA), "size_bytes": len(DATA)}
    assert response.headers["location"] == URL
    assert plane.services.layout.blobs.read(digest_of(DATA)) == DATA


def test_storing_a_blob_again_is_not_an_error(plane: ControlPlane) -> None:
    plane.client.put(URL, content=DATA)
    assert plane.client.put(URL, content=DATA).status_code == 200


def test_bytes_with_another_digest_are_not_kept(plane: ControlPlane) -> None:
    document = problem(plane.client.put(URL, content=DATA + b"!"), 400, "digest_mismatch")
    assert digest_of(DATA + b"!") in document["detail"]
    assert left_over(plane) == []


def test_a_body_that_announces_too_many_bytes_is_not_read(plane: ControlPlane) -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    response = plane.client.put(URL, content=never(), headers={"Content-Length": "10001"})
    assert "10000 bytes" in problem(response, 413, "too_large")["detail"]


def test_a_body_of_unknown_size_is_read_up_to_the_limit(plane: ControlPlane) -> None:
    response = plane.client.put(URL, content=iter([b"x" * 6000] * 2))
    problem(response, 413, "too_large")
    assert left_over(plane) == []


def test_a_body_of_exactly_the_limit_is_accepted(plane: ControlPlane) -> None:
    data = b"x" * 10_000
    assert plane.client.put(f"/api/v1/blobs/{digest_of(data)}", content=iter([data])).status_code == 201


def test_an_empty_body_is_refused(plane: ControlPlane) -> None:
    problem(plane.client.put(f"/api/v1/blobs/{digest_of(b'')}"), 400, "invalid_input")


def test_an_invalid_digest_is_refused(plane: ControlPlane) -> None:
    problem(plane.client.put("/api/v1/blobs/sha256:ABC", content=DATA), 400, "invalid_input")
