"""The processes of a cluster, with one PostgreSQL database and one bucket. Each process has its own folder."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton
from typer.testing import CliRunner

from service.cli.app import app
from service.core.target import detect_host
from tests.support import s3_server as s3
from tests.support.buckets import s3_server
from tests.support.cluster import Cluster, cluster, has_pools, workers
from tests.support.compiled import EXAMPLES, expected
from tests.support.databases import own_database, postgres_server
from tests.support.load import under_load
from tests.support.serving import INT8, RUNS_HERE, UINT8, Served
from tests.support.waiting import WORK_TIMEOUT_S, eventually

__all__ = ["postgres_server", "s3_server"]

pytestmark = pytest.mark.slow

HEARTBEAT_S = 1.0
HERE = detect_host().target.name
PICTURE = (EXAMPLES / "digits" / "7.png").read_bytes()


@dataclass(frozen=True)
class Members:
    cluster: Cluster
    api: Served
    first: Served
    second: Served


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory, postgres_server: str, s3_server: int) -> Iterator[Members]:
    """An API, and one worker for each of two targets. `digits` has been built for both."""
    if HERE == RUNS_HERE:
        pytest.skip(f"{RUNS_HERE} is all that this CPU runs")
    folder = tmp_path_factory.mktemp("cluster")
    with own_database(postgres_server) as database, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment(s3_server).items():
            patch.setenv(name, value)
        stores = {"database_url": database, "store_url": f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"}
        with cluster(folder, **stores, worker_heartbeat_s=HEARTBEAT_S) as started:
            api = started.start("api")
            started.compile_worker(RUNS_HERE, HERE)
            first = started.start("worker", "--target", RUNS_HERE)
            second = started.start("worker", "--target", HERE, "--pool", "best")
            has_pools(api, RUNS_HERE, "best")
            for target in (RUNS_HERE, HERE):
                build = api.ended(api.push(target=target)["id"])
                assert build["state"] == "succeeded", build
            yield Members(started, api, first, second)


def ask(url: str) -> int:
    """Sends a prediction and returns the status, or 0 if the connection was cut."""
    try:
        answer = httpx.post(f"{url}/v2/models/digits/infer", content=PICTURE, headers={"Content-Type": "image/png"})
    except httpx.TransportError:
        return 0
    if answer.status_code == 200:
        assert np.argmax(answer.json()["outputs"][0]["data"]) == 7
    return answer.status_code


def test_a_prediction_is_answered_through_the_api(members: Members) -> None:
    assert members.api.label(7) == expected(INT8)[7].argmax() == 7
    loaded = [{"model": "digits", "versions": [""]}]
    eventually(lambda: loaded in [each["loaded"] for each in workers(members.api)])


def test_a_prediction_over_grpc_is_answered_through_the_api(members: Members) -> None:
    assert members.api.grpc is not None
    with triton.InferenceServerClient(members.api.grpc) as client:
        [signature] = client.get_model_metadata("digits").inputs
        picture = triton.InferInput(signature.name, [1], "BYTES")
        picture.set_data_from_numpy(np.array([PICTURE], dtype=object))
        answer = client.infer("digits", [picture])
        assert answer.as_numpy(answer.get_response().outputs[0].name).argmax() == 7


def test_the_matrix_shows_both_pools(members: Members) -> None:
    rows = members.api.client.get("/api/v1/models/digits/matrix").json()["rows"]
    assert [(row["pool"], row["target"], row["workers"]) for row in rows] == [
        ("best", HERE, 1),
        (RUNS_HERE,) * 2 + (1,),
    ]
    for row in rows:
        assert (row["state"], row["verified"], row["machine"]) == ("ready", True, detect_host().model_name)
        assert row["p50_s"] > 0


def test_both_pools_respond_with_the_same_bytes(members: Members) -> None:
    answer = members.api.client.post(
        "/api/v1/models/digits/compare", content=PICTURE, headers={"Content-Type": "image/png"}
    ).json()
    assert (answer["equal"], answer["reference"]) == (True, "best"), answer
    assert [(each["pool"], each["problem"]) for each in answer["answers"]] == [("best", None), (RUNS_HERE, None)]


def test_octet_compare_reports_no_difference(members: Members, tmp_path: Path) -> None:
    (tmp_path / "7.png").write_bytes(PICTURE)
    result = CliRunner().invoke(app, ["compare", "digits", str(tmp_path / "7.png"), "--server", members.api.url])
    assert (result.exit_code, "all answers are equal, byte for byte" in result.stdout) == (0, True), result.output


def test_explicit_loads_and_unloads_reach_the_workers_of_both_pools(members: Members) -> None:
    def holders() -> int:
        return sum("digits" in {of["model"] for of in each["loaded"]} for each in workers(members.api))

    def have(action: str) -> dict[str, Any]:
        answer = members.api.client.post(f"/v2/repository/models/digits/{action}", json={})
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    assert have("load") == {"name": "digits", "load": True}
    eventually(lambda: holders() == 2)
    assert have("unload") == {"name": "digits", "unload": True}
    eventually(lambda: holders() == 0)
    assert [ask(each.url) for each in (members.api, members.first, members.second)] == [503] * 3
    assert members.api.grpc is not None
    with triton.InferenceServerClient(members.api.grpc) as client:
        client.load_model("digits")
    assert [ask(each.url) for each in (members.api, members.first, members.second)] == [200] * 3


def test_a_model_pushed_for_all_targets_is_served_by_every_pool(members: Members) -> None:
    def octet(*arguments: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, [*arguments, "--server", members.api.url, "--json"])
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    pushed = octet("push", str(EXAMPLES / UINT8), "--name", "everywhere", "--target", "all")
    assert [each["build"]["target"] for each in (pushed, *pushed["others"])] == [HERE, RUNS_HERE]
    rows = octet("matrix", "everywhere", "--measure")["rows"]
    assert [(row["pool"], row["state"], row["measuring"]) for row in rows] == [
        ("best", "ready", False),
        (RUNS_HERE, "ready", False),
    ]
    for row in rows:
        assert row["machine"] == detect_host().model_name
        assert 0 < row["p50_s"] <= row["p99_s"]
        assert row["per_s"] > 0
    answer = members.api.client.post(
        "/api/v1/models/everywhere/compare", content=PICTURE, headers={"Content-Type": "image/png"}
    ).json()
    assert answer["equal"], answer


def test_the_api_itself_loads_nothing(members: Members) -> None:
    mapped = Path(f"/proc/{members.api.data_plane()}/maps").read_text()
    assert members.api.label(3) == 3
    assert "store/blobs" not in mapped


def test_a_model_without_a_suitable_pool_has_a_reason(members: Members) -> None:
    build = members.api.push(name="elsewhere", target="aarch64")
    answer = members.api.client.post("/v2/models/elsewhere/infer", json={"inputs": []})
    assert (answer.status_code, "is being built (queued)" in answer.text) == (503, True), answer.text
    assert members.api.client.post("/v2/models/nowhere/infer", json={"inputs": []}).status_code == 404
    assert members.api.build(build["id"])["state"] == "queued", "no compile worker builds for this target"


def test_a_new_worker_loads_the_models_of_its_pool_before_it_is_ready(members: Members) -> None:
    """Because of this, no request to the new worker waits until a model is loaded."""

    def loaded_models() -> list[Any]:
        return [each["loaded"] for each in workers(members.api) if each["pool"] == "best"]

    assert ask(members.second.url) == 200
    eventually(lambda: any(loaded_models()))
    third = members.cluster.start("worker", "--target", HERE, "--pool", "best")
    eventually(lambda: third.client.get("/v2/health/ready").status_code == 200, WORK_TIMEOUT_S)
    # the API has only ready workers in its table, so the worker that it would inform may end
    first, second = loaded_models()
    assert first == second
    third.process.terminate()
    assert third.process.wait(WORK_TIMEOUT_S) == 0


def test_a_killed_worker_loses_no_request(members: Members) -> None:
    third = members.cluster.start("worker", "--target", HERE, "--pool", "best")
    has_three = lambda: len(workers(members.api)) == 3  # noqa: E731
    eventually(has_three, WORK_TIMEOUT_S)
    with under_load(lambda: ask(members.api.url)) as load:
        before = len(load.statuses)
        third.kill()
        killed_s = time.monotonic()
        eventually(lambda: len(load.statuses) > before + 50)
        eventually(lambda: time.monotonic() > killed_s + 2 * HEARTBEAT_S)
    assert set(load.statuses) == {200}


def test_a_stopped_worker_announces_it_and_loses_no_request(members: Members) -> None:
    third = members.cluster.start("worker", "--target", HERE, "--pool", "best")
    pid = third.control_plane()
    eventually(lambda: pid in {each["pid"] for each in workers(members.api)}, WORK_TIMEOUT_S)
    with under_load(lambda: ask(members.api.url)) as load:
        third.process.terminate()
        assert third.process.wait(WORK_TIMEOUT_S) == 0
        assert pid not in {each["pid"] for each in workers(members.api)}
        before = len(load.statuses)
        eventually(lambda: len(load.statuses) > before + 20)
    assert set(load.statuses) == {200}
