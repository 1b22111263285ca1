"""Servers on several machines share one PostgreSQL database and one bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_network import BadNetwork, bad_network
from tests.support.buckets import s3_server, s3_url
from tests.support.databases import postgres_schema, postgres_server
from tests.support.serving import Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

__all__ = ["postgres_schema", "postgres_server", "s3_server", "s3_url"]


@pytest.fixture
def network(s3_url: str, s3_server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadNetwork]:
    """The network between all servers and the bucket, which tests can make faulty."""
    with bad_network(("127.0.0.1", s3_server)) as network:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{network.port}")
        yield network


@pytest.fixture
def stores(postgres_schema: str, s3_url: str) -> dict[str, Any]:
    return {"database_url": postgres_schema, "store_url": s3_url, "store_timeout_s": 1, "heartbeat_s": 0.5}


def machine(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    return folder


def is_ready(served: Served) -> bool:
    return served.client.get("/v2/models/digits/ready").status_code == 200


@pytest.mark.slow
def test_a_build_of_one_machine_is_served_by_another_even_during_an_outage_of_the_bucket(
    tmp_path: Path, stores: dict[str, Any], network: BadNetwork
) -> None:
    first, second = machine(tmp_path, "first"), machine(tmp_path, "second")
    with serving(first, **stores) as served:
        build = served.push()
        assert served.ended(build["id"])["state"] == "succeeded"
        assert served.label(7) == 7
        with serving(second, **stores) as another:
            assert another.build(build["id"])["state"] == "succeeded"
            assert another.label(3) == 3
            assert another.stop() == 0
        network.refuse()
        assert served.label(2) == 2
        refused = served.client.put("/api/v1/models", params={"name": "new"}, content=b"TFL3" * 100)
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unreachable")
        assert served.stop() == 0
    with serving(second, **stores) as restarted:  # the server uses the blobs that it fetched before
        assert restarted.label(9) == 9
        network.accept()
        pushed = restarted.push(name="other")
        assert restarted.ended(pushed["id"])["state"] == "succeeded"
        assert restarted.stop() == 0


@pytest.mark.slow
def test_a_build_survives_an_outage_of_the_bucket(tmp_path: Path, stores: dict[str, Any], network: BadNetwork) -> None:
    """The build is released until the bucket responds again, and its attempts are not counted."""
    with serving(machine(tmp_path, "one"), **stores) as served:
        build = served.push()
        served.reaches(build["id"], "import")
        network.refuse()
        states = {event.data.get("state") for event in _until_given_back(served, build["id"])}
        assert "queued" in states
        network.accept()
        ended = served.ended(build["id"])
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
        eventually(lambda: is_ready(served), WORK_TIMEOUT_S)
        assert served.stop() == 0


@pytest.mark.slow
def test_loaded_models_answer_during_an_outage_of_the_database(
    tmp_path: Path, postgres_server: str, postgres_schema: str
) -> None:
    log = tmp_path / "log"
    with bad_network(Path(postgres_server) / ".s.PGSQL.5432") as network, log.open("w") as output:
        schema = postgres_schema.rpartition("%3D")[2]
        url = f"postgresql://octet@127.0.0.1:{network.port}/postgres?options=-csearch_path%3D{schema}"
        with serving(machine(tmp_path, "one"), output, database_url=url, database_timeout_s=1) as served:
            assert served.ended(served.push()["id"])["state"] == "succeeded"
            assert served.label(7) == 7
            for fault in (network.refuse, network.stall):
                fault()
                for _ in range(5):  # the server reads changes from the tables twice a second
                    answer = served.client.get("/api/v1/models")
                    assert (answer.status_code, answer.json()["code"]) == (503, "database_unreachable")
                    assert served.label(3) == 3
                network.flow()
                network.accept()
            eventually(lambda: served.client.get("/api/v1/models").status_code == 200, WORK_TIMEOUT_S)
            assert served.ended(served.push(name="other")["id"])["state"] == "succeeded"
            assert served.stop() == 0
    log_text = log.read_text()
    assert "the database responds again, after" in log_text
    assert "Traceback" not in log_text


def _until_given_back(served: Served, id: str) -> Iterator[Any]:
    was_taken = False
    for event in served.events(id):
        yield event
        was_taken |= event.data.get("state") == "running"
        if was_taken and event.data.get("state") == "queued":
            return
