from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from service.cli.events import parse_events
from service.core.builds.build import BuildEvent, Stage
from service.core.errors import UnsupportedOperator
from tests.support.control_plane import ControlPlane, problem

WAIT_S = 60  # the longest wait: a test that takes this long has missed the event that it waits for
WAIT = {"Prefer": f"wait={WAIT_S}"}


@pytest.fixture
def url(plane: ControlPlane) -> str:
    """The URL of a queued build."""
    return str(plane.push().headers["location"])


@contextmanager
def soon(action: Callable[[], object], after_s: float = 0.3) -> Iterator[None]:
    timer = threading.Timer(after_s, action)
    timer.start()
    yield
    timer.join()


def events(response: httpx.Response) -> list[tuple[int, str, dict[str, Any]]]:
    return [(int(event.id), event.kind, event.data) for event in parse_events(response.text.splitlines())]


def test_a_build(plane: ControlPlane, url: str) -> None:
    response = plane.client.get(url)
    build = response.json()
    assert (build["state"], build["stage"], build["artifact"], build["error"]) == ("queued", None, None, None)
    assert response.headers["retry-after"]


def test_a_running_build(plane: ControlPlane, url: str) -> None:
    plane.services.builds.progress(plane.claim(), Stage.CODEGEN, 0.25)
    build = plane.client.get(url).json()
    assert (build["state"], build["stage"], build["progress"], build["attempt"]) == ("running", "codegen", 0.25, 1)


def test_a_build_that_succeeded(plane: ControlPlane, url: str) -> None:
    artifact = plane.succeed()
    response = plane.client.get(url)
    build = response.json()
    assert (build["state"], build["artifact"]) == ("succeeded", artifact)
    assert plane.client.get(build["links"]["artifact"]).status_code == 200
    assert datetime.fromisoformat(build["started_at"]) <= datetime.fromisoformat(build["finished_at"])
    assert datetime.fromisoformat(build["finished_at"]).utcoffset() == timedelta(0)
    assert "retry-after" not in response.headers


def test_a_failed_build_has_its_error(plane: ControlPlane, url: str) -> None:
    plane.fail(UnsupportedOperator("no LSTM", stage="import", op="LSTM", tensor="state", hint="unroll it"))
    response = plane.client.get(url)
    assert response.status_code == 200
    assert response.json()["state"] == "failed"
    assert response.json()["error"] == {
        "code": "unsupported_operator",
        "message": "no LSTM",
        "stage": "import",
        "op": "LSTM",
        "tensor": "state",
        "hint": "unroll it",
        "report": None,
    }


@pytest.mark.parametrize("path", ["", "/events", "/log"])
def test_a_missing_build(plane: ControlPlane, path: str) -> None:
    problem(plane.client.get(f"/api/v1/builds/nothing{path}"), 404, "not_found")


def test_builds_are_listed_newest_first_and_page_by_page(plane: ControlPlane) -> None:
    for target in ("aarch64", "x86-64-v3", "x86-64-v4"):
        plane.push(target=target)
    first = plane.client.get("/api/v1/builds?limit=2")
    second = plane.client.get(first.links["next"]["url"])
    assert [build["target"] for build in first.json()["builds"]] == ["x86-64-v4", "x86-64-v3"]
    assert [build["target"] for build in second.json()["builds"]] == ["aarch64"]
    assert "next" not in second.links


def test_the_next_page_has_the_same_filters(plane: ControlPlane) -> None:
    for target in ("aarch64", "x86-64-v3"):
        plane.push(target=target)
    plane.push(name="other", target="x86-64-v4")
    response = plane.client.get("/api/v1/builds?model=digits&state=queued&limit=1")
    following = plane.client.get(response.links["next"]["url"]).json()["builds"]
    assert [(build["model"], build["target"]) for build in following] == [("digits", "aarch64")]


def test_builds_of_one_state(plane: ControlPlane) -> None:
    plane.push()
    plane.push(target="aarch64")
    plane.succeed()
    for state, count in {"succeeded": 1, "queued": 1, "failed": 0}.items():
        assert len(plane.client.get(f"/api/v1/builds?state={state}").json()["builds"]) == count


@pytest.mark.parametrize("query", ["state=done", "cursor=abc", "limit=201", "model=A"])
def test_invalid_filters_and_cursors_are_refused(plane: ControlPlane, query: str) -> None:
    problem(plane.client.get(f"/api/v1/builds?{query}"), 400, "invalid_input")


class TestWaiting:
    def test_the_response_is_sent_when_the_build_ends(self, plane: ControlPlane, url: str) -> None:
        started_s = time.monotonic()
        with soon(plane.succeed):
            response = plane.client.get(url, headers=WAIT)
        assert response.json()["state"] == "succeeded"
        assert response.headers["preference-applied"] == f"wait={WAIT_S}"
        assert time.monotonic() - started_s < WAIT_S

    def test_an_ended_build_is_returned_at_once(self, plane: ControlPlane, url: str) -> None:
        plane.succeed()
        started_s = time.monotonic()
        plane.client.get(url, headers=WAIT)
        assert time.monotonic() - started_s < WAIT_S

    def test_the_response_is_sent_when_the_time_is_up(self, plane: ControlPlane, url: str) -> None:
        started_s = time.monotonic()
        assert plane.client.get(url, headers={"Prefer": "wait=1"}).json()["state"] == "queued"
        assert time.monotonic() - started_s >= 1

    def test_with_an_etag_any_change_ends_the_wait(self, plane: ControlPlane, url: str) -> None:
        etag = plane.client.get(url).headers["etag"]
        with soon(plane.claim):
            response = plane.client.get(url, headers={**WAIT, "If-None-Match": etag})
        assert response.json()["state"] == "running"

    def test_with_an_etag_no_change_is_a_304(self, plane: ControlPlane, url: str) -> None:
        etag = plane.client.get(url).headers["etag"]
        response = plane.client.get(url, headers={"Prefer": "wait=1", "If-None-Match": etag})
        assert (response.status_code, response.content) == (304, b"")

    def test_the_wait_ends_when_the_server_stops(self, plane: ControlPlane, url: str) -> None:
        started_s = time.monotonic()
        with soon(plane.services.stopping.set):
            assert plane.client.get(url, headers=WAIT).json()["state"] == "queued"
        assert time.monotonic() - started_s < WAIT_S

    @pytest.mark.parametrize("prefer", ["respond-async", "wait=soon", "wait=-1", "await=30"])
    def test_other_preferences_are_not_applied(self, plane: ControlPlane, url: str, prefer: str) -> None:
        response = plane.client.get(url, headers={"Prefer": prefer})
        assert response.status_code == 200
        assert "preference-applied" not in response.headers

    @pytest.mark.parametrize("prefer", ["respond-async, wait=0", 'wait="0"', "return=minimal; wait = 0"])
    def test_the_preference_may_be_one_of_several(self, plane: ControlPlane, url: str, prefer: str) -> None:
        assert plane.client.get(url, headers={"Prefer": prefer}).headers["preference-applied"] == "wait=0"

    def test_the_wait_is_at_most_a_minute(self, plane: ControlPlane, url: str) -> None:
        plane.succeed()
        assert plane.client.get(url, headers={"Prefer": "wait=999"}).headers["preference-applied"] == "wait=60"


class TestETag:
    @pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
    def test_an_unchanged_build_is_not_sent_again(self, plane: ControlPlane, url: str, form: str) -> None:
        etag = plane.client.get(url).headers["etag"]
        response = plane.client.get(url, headers={"If-None-Match": form.format(etag)})
        assert (response.status_code, response.headers["etag"]) == (304, etag)

    def test_a_changed_build_is_sent(self, plane: ControlPlane, url: str) -> None:
        etag = plane.client.get(url).headers["etag"]
        plane.claim()
        response = plane.client.get(url, headers={"If-None-Match": etag})
        assert response.status_code == 200
        assert response.headers["etag"] != etag


class TestEvents:
    def test_all_events_of_a_build(self, plane: ControlPlane, url: str) -> None:
        artifact = plane.succeed()
        response = plane.client.get(f"{url}/events")
        assert response.headers["content-type"].startswith("text/event-stream")
        story = events(response)
        assert [number for number, _, _ in story] == [1, 2, 3, 4, 5]
        assert [kind for _, kind, _ in story] == ["state", "state", "stage", "log", "state"]
        assert story[0][2]["state"] == "queued"
        assert story[2][2] | {"at": ""} == {"stage": "codegen", "fraction": 0.5, "at": ""}
        assert story[4][2] | {"at": ""} == {"state": "succeeded", "artifact": artifact, "at": ""}
        assert datetime.fromisoformat(story[0][2]["at"]).utcoffset() == timedelta(0)

    def test_the_events_end_with_the_build(self, plane: ControlPlane, url: str) -> None:
        with soon(plane.succeed):
            response = plane.client.get(f"{url}/events")
        assert events(response)[-1][2]["state"] == "succeeded"

    def test_the_events_resume_after_the_last_one_received(self, plane: ControlPlane, url: str) -> None:
        plane.succeed()
        response = plane.client.get(f"{url}/events", headers={"Last-Event-ID": "3"})
        assert [number for number, _, _ in events(response)] == [4, 5]

    def test_a_client_with_all_events_gets_204(self, plane: ControlPlane, url: str) -> None:
        plane.succeed()
        assert plane.client.get(f"{url}/events", headers={"Last-Event-ID": "5"}).status_code == 204

    def test_the_events_end_when_the_server_stops(
        self, plane: ControlPlane, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look = plane.services.builds.events

        def look_and_stop_soon(id: str, after: int) -> list[BuildEvent]:
            threading.Timer(0.3, plane.services.stopping.set).start()
            return look(id, after)

        monkeypatch.setattr(plane.services.builds, "events", look_and_stop_soon)
        response = plane.client.get(f"{url}/events")
        assert [data["state"] for _, _, data in events(response)] == ["queued"]

    def test_a_line_of_the_log_cannot_forge_an_event(self, plane: ControlPlane, url: str) -> None:
        claim = plane.claim()
        plane.services.builds.log(claim, 'x\n\nid: 99\nevent: state\ndata: {"state": "succeeded"}\r\r\udcff')
        plane.services.builds.finish(claim, error=UnsupportedOperator())
        story = events(plane.client.get(f"{url}/events"))
        assert [number for number, _, _ in story] == [1, 2, 3, 4]
        assert story[2][2]["line"].startswith("x\n\nid: 99")

    @pytest.mark.parametrize("last", ["-1", "x", "1.5", "9" * 30])
    def test_an_invalid_event_id(self, plane: ControlPlane, url: str, last: str) -> None:
        response = plane.client.get(f"{url}/events", headers={"Last-Event-ID": last})
        problem(response, 400, "invalid_input")


def test_the_log(plane: ControlPlane, url: str) -> None:
    plane.succeed()
    response = plane.client.get(f"{url}/log")
    assert response.headers["content-type"].startswith("text/plain")
    at, line = response.text.rstrip("\n").split(" ", 1)
    assert line == "as good as new"
    assert datetime.fromisoformat(at)


class TestCancel:
    def test_a_queued_build_is_canceled_at_once(self, plane: ControlPlane, url: str) -> None:
        assert plane.client.post(f"{url}/cancel").json()["state"] == "canceled"
        assert plane.services.builds.claim("worker", 60) is None

    def test_a_running_build_is_requested_to_stop(self, plane: ControlPlane, url: str) -> None:
        plane.claim()
        build = plane.client.post(f"{url}/cancel").json()
        assert (build["state"], build["cancel_requested"]) == ("running", True)

    def test_an_ended_build_is_not_changed(self, plane: ControlPlane, url: str) -> None:
        plane.succeed()
        assert plane.client.post(f"{url}/cancel").json()["state"] == "succeeded"

    def test_a_missing_build(self, plane: ControlPlane) -> None:
        problem(plane.client.post("/api/v1/builds/nothing/cancel"), 404, "not_found")
