"""Predictions with `Prefer: respond-async` against a running server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.compiled import EXAMPLES
from tests.support.serving import Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

URL, ASYNC = "/api/v1/models/digits/predict", {"Prefer": "respond-async"}
PICTURE = (EXAMPLES / "digits" / "7.png").read_bytes()
MOST_JOBS = 3
ADMIN_KEY = "octet_cluster_" + 48 * "x"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with keys, and limits of the jobs of a tenant."""
    with serving(
        tmp_path_factory.mktemp("jobs"), admin_key=ADMIN_KEY, max_jobs=MOST_JOBS, max_jobs_bytes=2_000_000
    ) as served:
        served.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        yield served


@pytest.fixture(autouse=True)
def no_jobs(served: Served) -> Iterator[None]:
    yield
    for job in served.client.get("/api/v1/jobs").json()["jobs"]:
        served.client.delete(f"/api/v1/jobs/{job['id']}")


def start(served: Served, *, headers: dict[str, str] | None = None, **request: Any) -> httpx.Response:
    return served.client.post(URL, headers={**ASYNC, **(headers or {})}, **request)


def ended(served: Served, response: httpx.Response, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Waits for the job in `response`, and returns it."""
    job: dict[str, Any] = {}

    def is_over() -> bool:
        sent = {"Prefer": "wait=10", **(headers or {})}
        found = served.client.get(response.headers["location"], headers=sent)
        if found.is_success:  # not while the control plane starts
            job.update(found.json())
        return str(job.get("state", "running")) != "running"

    eventually(is_over, WORK_TIMEOUT_S)
    return job


def test_a_job_has_the_result_of_the_prediction(served: Served) -> None:
    kind = {"content-type": "image/png"}
    response = start(served, content=PICTURE, headers=kind)
    assert (response.status_code, response.headers["preference-applied"]) == (202, "respond-async")
    assert response.json()["model"] == "digits"
    job = ended(served, response)
    assert (job["state"], job["samples"], job["completed"]) == ("succeeded", 1, 1)
    assert job["result"] == served.client.post(URL, content=PICTURE, headers=kind).json()
    assert job["id"] in [each["id"] for each in served.client.get("/api/v1/jobs").json()["jobs"]]
    assert served.client.delete(response.headers["location"]).status_code == 204
    for method in ("GET", "DELETE"):
        assert served.client.request(method, response.headers["location"]).status_code == 404


def test_a_job_survives_the_end_of_the_data_plane(served: Served) -> None:
    response = start(served, json={"rows": [[0.5] * 256] * 1000})
    os.kill(served.data_plane(), signal.SIGKILL)

    def is_there() -> bool:
        try:
            return served.client.get(response.headers["location"]).is_success
        except httpx.TransportError:
            return False

    eventually(is_there)
    job = ended(served, response)
    assert job["state"] == "succeeded", job
    assert len(job["result"]["results"]) == 1000


def test_the_error_of_a_job_names_the_sample(served: Served) -> None:
    job = ended(served, start(served, json={"rows": [[0.5] * 256, [1.0]]}))
    assert job["state"] == "failed"
    assert job["error"]["message"].startswith("input 1: input 'image' has shape")
    malformed = start(served, json={"rows": 1})
    assert malformed.status_code == 400  # before a job is started


def test_a_running_job_is_canceled(served: Served) -> None:
    response = start(served, json={"rows": [[0.5] * 256] * 1000})
    assert served.client.delete(response.headers["location"]).status_code == 204
    assert served.client.get(response.headers["location"]).status_code == 404


@pytest.mark.slow
def test_a_job_is_lost_with_the_control_plane(served: Served) -> None:
    response = start(served, json={"rows": [[0.5] * 256] * 1000})
    os.kill(served.control_plane(), signal.SIGKILL)
    job = ended(served, response)
    assert (job["state"], job["error"]["code"]) == ("failed", "restarting")


def test_a_key_sees_only_its_own_jobs_and_all_are_limited(served: Served) -> None:
    def key(name: str) -> dict[str, str]:
        made = served.client.post("/api/v1/keys", json={"name": name, "scopes": ["predict"]}).json()
        return {"Authorization": f"Bearer {made['key']}"}

    one, other = key("one"), key("other")
    body = {"content": PICTURE}
    mine = start(served, headers=one, **body)
    assert ended(served, mine, one)["state"] == "succeeded"
    for method in ("GET", "DELETE"):
        assert served.client.request(method, mine.headers["location"], headers=other).status_code == 404
    assert served.client.get("/api/v1/jobs", headers=other).json() == {"jobs": []}
    large = start(served, headers=other, json={"rows": [[0.123456789] * 256] * 1000})
    assert (large.status_code, "bytes" in large.json()["detail"]) == (429, True)
    for _ in range(MOST_JOBS - 1):
        assert start(served, headers=other, **body).status_code == 202
    refused = start(served, headers=one, **body)
    assert (refused.status_code, refused.json()["detail"]) == (429, "there are 3 jobs, and the limit is 3")
    assert served.client.delete(mine.headers["location"], headers=one).status_code == 204
    assert start(served, headers=one, **body).status_code == 202
