"""Tests that every error of every endpoint is a problem document."""

from __future__ import annotations

import errno
import json

import pytest

from service.api import problems, statuses
from service.core import errors
from service.core.errors import OctetError
from tests.support.control_plane import ControlPlane, problem


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.InvalidInput, 400),
        (errors.DigestMismatch, 400),
        (errors.InvalidTensor, 400),
        (errors.Unauthorized, 401),
        (errors.NotFound, 404),
        (errors.Conflict, 409),
        (errors.TooLarge, 413),
        (errors.UnsupportedFormat, 415),
        (errors.UnknownTarget, 422),
        (errors.UnsupportedOperator, 422),
        (errors.QueueFull, 429),
        (errors.CorruptBlob, 500),
        (errors.NotReady, 503),
        (errors.DeadlinePassed, 504),
        (errors.StorageFull, 507),
    ],
)
def test_an_error_has_the_status_of_its_nearest_ancestor(kind: type[OctetError], status: int) -> None:
    assert statuses.status_of(kind()) == status


def test_a_problem_has_its_location_and_a_hint(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    error = errors.UnsupportedOperator("no LSTM", stage="import", op="LSTM", tensor="state", hint="unroll it")
    raise_from_models(plane, monkeypatch, error)
    document = problem(plane.client.get("/api/v1/models"), 422, "unsupported_operator")
    assert document["detail"] == "no LSTM"
    assert (document["stage"], document["op"], document["tensor"]) == ("import", "LSTM", "state")
    assert document["hint"] == "unroll it"
    assert document["title"] == "The model uses an operator that Octet does not compile."


def test_unknown_members_are_omitted(plane: ControlPlane) -> None:
    document = problem(plane.client.get("/api/v1/builds/none"), 404, "not_found")
    assert not {"stage", "op", "tensor"} & document.keys()


def test_a_failed_build_has_no_retry_after(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_from_models(plane, monkeypatch, errors.NotBuilt())
    answer = plane.client.get("/api/v1/models")
    assert answer.status_code == 503
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("kind", [errors.QueueFull, errors.NotReady])
def test_a_temporary_error_has_retry_after(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, kind: type[OctetError]
) -> None:
    raise_from_models(plane, monkeypatch, kind())
    assert plane.client.get("/api/v1/models").headers["retry-after"] == "1"


def test_a_missing_path(plane: ControlPlane) -> None:
    assert "/api/v1/nothing" in problem(plane.client.get("/api/v1/nothing"), 404, "not_found")["detail"]


def test_a_missing_path_of_the_data_plane(plane: ControlPlane) -> None:
    problem(plane.client.get("/v2/nothing"), 404, "not_found")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/v1/models", "GET, POST, PUT"),
        ("/api/v1/builds/x/cancel", "POST"),
        ("/api/v1/targets", "GET"),
    ],
)
def test_an_unsupported_method(plane: ControlPlane, path: str, allowed: str) -> None:
    response = plane.client.delete(path)
    assert "DELETE" in problem(response, 405, "method_not_allowed")["detail"]
    assert response.headers["allow"] == allowed


def test_an_invalid_parameter_is_named(plane: ControlPlane) -> None:
    document = problem(plane.client.get("/api/v1/models?limit=0&cursor=a"), 400, "invalid_input")
    assert [found["location"] for found in document["errors"]] == ["query.limit"]


def test_the_rules_for_names_are_explained(plane: ControlPlane) -> None:
    document = problem(plane.client.get("/api/v1/models/Mobile%20Net"), 400, "invalid_input")
    assert document["detail"].startswith("path.name: a name is up to 63 lower-case letters, digits")


def test_the_details_of_an_unexpected_error_are_only_in_the_log(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raise_from_models(plane, monkeypatch, RuntimeError("the secret"))
    response = plane.client.get("/api/v1/models", headers={"X-Request-Id": "abc"})
    document = problem(response, 500, "internal_error")
    assert "secret" not in response.text
    assert document["request_id"] == "abc"
    assert "abc" in caplog.text
    assert "the secret" in caplog.text


def test_a_full_disk_is_reported_as_such(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_from_models(plane, monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    problem(plane.client.get("/api/v1/models"), 507, "storage_full")


def test_an_invalid_character_in_a_message_does_not_break_the_document(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_from_models(plane, monkeypatch, errors.InvalidInput("tensor \udcff"))
    assert problem(plane.client.get("/api/v1/models"), 400, "invalid_input")["detail"] == "tensor \udcff"


def test_each_request_has_an_id(plane: ControlPlane) -> None:
    first, second = (plane.client.get("/v2/health/live").headers["x-request-id"] for _ in range(2))
    assert first
    assert first != second


def test_the_clients_own_id_is_kept(plane: ControlPlane) -> None:
    response = plane.client.get("/v2/health/live", headers={"X-Request-Id": "trace-1.a_B"})
    assert response.headers["x-request-id"] == "trace-1.a_B"


@pytest.mark.parametrize("hostile", ["", "a b", "x" * 129, "é"])
def test_an_id_that_could_break_a_line_of_the_log_is_replaced(plane: ControlPlane, hostile: str) -> None:
    response = plane.client.get("/v2/health/live", headers={b"X-Request-Id": hostile.encode()})
    assert response.headers["x-request-id"] != hostile
    assert response.headers["x-request-id"].isalnum()


def raise_from_models(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(plane.services.models, "list", fail)


def test_every_kind_of_error_has_a_status() -> None:
    def tree(kind: type[OctetError]) -> list[type[OctetError]]:
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]

    ours = (kind for kind in tree(OctetError) if kind.__module__ == errors.__name__)
    core: list[type[OctetError]] = [OctetError, *ours]
    meant_for_500 = {OctetError, errors.CorruptBlob, errors.BuildFailed, *errors.BuildFailed.__subclasses__()}
    assert {kind for kind in core if statuses.status_of(kind()) == 500} == meant_for_500


def test_a_request_that_failed_for_lack_of_memory_can_be_repeated() -> None:
    response = problems.unexpected_response(MemoryError("Unable to allocate 9 GiB"), {"path": "/v2/models/m/infer"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert json.loads(bytes(response.body))["code"] == "memory_full"
