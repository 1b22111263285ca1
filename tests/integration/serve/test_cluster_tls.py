"""An API connects to its workers over TLS, in separate processes. Workers that it cannot authenticate get no
requests.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import s3_server as s3
from tests.support.buckets import s3_server
from tests.support.certificates import Authority
from tests.support.cluster import Cluster, cluster, workers
from tests.support.databases import own_database, postgres_server
from tests.support.serving import RUNS_HERE, Served
from tests.support.waiting import WORK_TIMEOUT_S, eventually

__all__ = ["postgres_server", "s3_server"]

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Members:
    cluster: Cluster
    api: Served
    authority: Authority
    folder: Path

    def worker(self, pool: str, authority: Authority | None, **certificate: Any) -> Served:
        """Starts another worker. Its certificate is from the authority and valid for its address."""
        arguments = ["worker", "--target", RUNS_HERE, "--pool", pool]
        if authority is not None:
            files = authority.server("127.0.0.1", **certificate)
            arguments += ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
        return self.cluster.start(*arguments)

    def refusals(self) -> dict[str, str | None]:
        """Returns, for each pool, the reason why its workers get no requests."""
        return {each["pool"]: each["refused"] for each in workers(self.api)}

    def infer(self) -> tuple[int, str]:
        answer = self.api.client.post("/v2/models/digits/infer", json={"inputs": []})
        return answer.status_code, answer.text


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory, postgres_server: str, s3_server: int) -> Iterator[Members]:
    """An API with a certificate authority and no worker yet. `digits` has been built."""
    folder = tmp_path_factory.mktemp("cluster")
    authority = Authority(folder)
    with own_database(postgres_server) as database, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment(s3_server).items():
            patch.setenv(name, value)
        stores = {"database_url": database, "store_url": f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"}
        with cluster(folder, **stores, worker_heartbeat_s=1.0) as started:
            api = started.start("api", cluster_ca=authority.file)
            started.compile_worker(RUNS_HERE)
            build = api.ended(api.push(target=RUNS_HERE)["id"])
            assert build["state"] == "succeeded", build
            yield Members(started, api, authority, folder)


def test_only_authenticated_workers_get_requests(members: Members) -> None:
    plain = members.worker("plain", None)
    eventually(lambda: "plain" in members.refusals(), WORK_TIMEOUT_S)
    eventually(lambda: "cluster_ca requires TLS" in str(members.refusals()["plain"]))
    status, text = members.infer()
    assert status == 503
    assert "it accepts requests in plain text" in text
    plain.process.terminate()

    members.worker("expired", members.authority, lasts=timedelta(hours=-1))
    members.worker("foreign", Authority(members.folder, "another"))
    eventually(lambda: "certificate has expired" in str(members.refusals().get("expired")), WORK_TIMEOUT_S)
    eventually(lambda: "unable to get local issuer" in str(members.refusals().get("foreign")), WORK_TIMEOUT_S)
    eventually(lambda: "is not trusted" in members.infer()[1])
    assert members.infer()[0] == 503

    members.worker("good", members.authority)
    eventually(lambda: members.refusals().get("good", "not there") is None, WORK_TIMEOUT_S)
    eventually(lambda: members.infer()[0] == 400)  # a worker reports that the inputs are missing
    assert members.api.label(7) == 7
    address = next(each["address"] for each in workers(members.api) if each["pool"] == "good")
    assert address.startswith("https://127.0.0.1:")


def test_explicit_loads_use_tls_too(members: Members) -> None:
    answer = members.api.client.post("/v2/repository/models/digits/load", json={})
    assert answer.status_code == 503  # no worker is authenticated
    assert "certificate" in answer.text
    assert "of 3 workers" in answer.text
    assert "pool good" not in answer.text
