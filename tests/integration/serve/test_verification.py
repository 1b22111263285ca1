"""If the machine of the compile worker cannot run an artifact, a worker of the artifact's target verifies it, and then
it is served. The test runs processes, with PostgreSQL and a bucket.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from service.core.digest import Digest
from service.core.target import detect_host
from service.core.verification.jobs import Verification, VerificationState
from service.db import Database, VerificationStore
from tests.support import s3_server as s3
from tests.support.buckets import s3_server
from tests.support.cluster import Cluster, cluster, has_pools
from tests.support.databases import own_database, postgres_server
from tests.support.serving import RUNS_HERE, UINT8, Served
from tests.support.waiting import WORK_TIMEOUT_S, eventually

__all__ = ["postgres_server", "s3_server"]

LEASE_S = 3.0


@dataclass(frozen=True)
class Members:
    cluster: Cluster
    api: Served
    verifications: VerificationStore

    def built(self, file: str, name: str) -> Digest:
        """Waits for a build that is not verified yet, and returns its artifact."""
        build = self.api.ended(self.api.push(file, name, target=RUNS_HERE)["id"])
        assert build["state"] == "succeeded", build
        return Digest(build["artifact"])

    def found(self, artifact: Digest) -> Verification:
        return self.verifications.find([artifact])[artifact]

    def worker(self) -> Served:
        return self.cluster.start("worker", "--target", RUNS_HERE)

    def refusal(self, name: str) -> str:
        answer = self.api.client.post(f"/v2/models/{name}/infer", json={"inputs": []})
        assert answer.status_code == 503, answer.text
        return str(answer.json())


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory, postgres_server: str, s3_server: int) -> Iterator[Members]:
    """An API, and a compile worker whose machine cannot run any target. No other worker is running."""
    folder = tmp_path_factory.mktemp("cluster")
    with own_database(postgres_server) as url, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment(s3_server).items():
            patch.setenv(name, value)
        stores = {"database_url": url, "store_url": f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"}
        with cluster(folder, **stores, worker_heartbeat_s=1.0, lease_s=LEASE_S, heartbeat_s=1.0) as started:
            api = started.start("api")
            started.compile_worker(RUNS_HERE, can_verify=False)
            database = Database(url)
            yield Members(started, api, VerificationStore(database))
            database.close()


@pytest.mark.slow
def test_an_unverified_artifact_is_served_after_a_worker_has_verified_it(members: Members) -> None:
    artifact = members.built("digits_int8.tflite", "digits")
    why = f"no worker for {RUNS_HERE} has verified model 'digits' yet"
    assert why in members.refusal("digits")
    members.worker()
    eventually(lambda: members.found(artifact).state.is_final, WORK_TIMEOUT_S)
    found = members.found(artifact)
    assert found.state is VerificationState.PASSED, found
    assert "all" in found.summary
    assert (found.result["pool"], found.result["machine"]) == (RUNS_HERE, detect_host().model_name)
    assert 0 < found.result["p50_s"] <= found.result["p99_s"]
    has_pools(members.api, RUNS_HERE)
    assert members.api.label(7) == 7


@pytest.mark.slow
def test_the_verification_of_a_killed_worker_is_finished_by_another(members: Members) -> None:
    """This test uses the cluster of the previous test. The worker is killed during the verification, and another one
    starts.
    """
    [pid] = [
        each["pid"]
        for each in members.api.client.get("/api/v1/workers").json()["workers"]
        if each["kind"] == "inference"
    ]
    artifact = members.built(UINT8, "others")
    eventually(lambda: members.found(artifact).state is VerificationState.RUNNING)
    first = members.found(artifact)
    os.kill(pid, signal.SIGKILL)
    assert members.found(artifact) == first, "the verification ended before the worker was killed"
    eventually(lambda: members.found(artifact).state.is_final, WORK_TIMEOUT_S)
    found = members.found(artifact)
    assert (found.state, found.attempt) == (VerificationState.PASSED, 2)
    assert found.worker != first.worker
    eventually(lambda: members.api.client.get("/v2/models/others").status_code == 200, WORK_TIMEOUT_S)
    assert members.api.label(3, "others") == 3
