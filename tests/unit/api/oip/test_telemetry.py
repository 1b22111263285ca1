"""What `/metrics` says of predict requests."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.api.oip import InferenceTelemetry
from service.api.oip.telemetry import LoadedModel, RequestTelemetry
from service.api.oip.timeline import Timeline
from service.api.ops import versions
from service.api.ops.metrics import Metrics
from service.core.digest import digest_of
from service.workers.inference import Identity, Stages
from service.workers.inference.memory import Weight
from tests.support.data_plane import as_json, connect
from tests.support.runners import digits
from tests.support.tables import TARGET, Tables

pytestmark = pytest.mark.anyio

REQUEST = as_json(np.zeros((1, 8, 8, 1), np.uint8), "image")
MODEL = {"model": "digits", "version": "1", "target": TARGET}


def samples(metrics: Metrics, name: str) -> dict[frozenset[tuple[str, str]], float]:
    return {
        frozenset(sample.labels.items()): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == name
    }


def labels(**members: str) -> frozenset[tuple[str, str]]:
    return frozenset({**MODEL, **members}.items())


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    return tables


async def test_an_answer_is_counted_once_in_every_metric(tables: Tables) -> None:
    async with connect(tables) as client:
        for _ in range(3):
            await client.post("/v2/models/digits/infer", json=REQUEST)
        metrics: Metrics = client.plane.metrics  # type: ignore[attr-defined]
        artifact = str(tables.builds[0].artifact)
        info = labels(digest=artifact, numerics="litert-reference")
        assert samples(metrics, "octet_artifact_info") == {info: 1}
    answered = labels(protocol="rest", code="200")
    assert samples(metrics, "octet_requests_total") == {answered: 3}
    assert samples(metrics, "octet_request_duration_seconds_count") == {answered: 3}
    assert samples(metrics, "octet_queue_duration_seconds_count") == {labels(): 3}
    assert samples(metrics, "octet_compute_duration_seconds_count") == {
        labels(phase=phase): 3 for phase in ("input", "infer", "output")
    }
    assert samples(metrics, "octet_requests_rejected_total") == {}
    assert samples(metrics, "octet_artifact_info") == {}  # the registry was closed


async def test_the_memory_of_loaded_models_is_a_gauge(tables: Tables) -> None:
    artifact = tables.builds[0].artifact
    assert artifact is not None
    tables.weights[artifact] = Weight({}, 12_345)
    async with connect(tables) as client:
        metrics: Metrics = client.plane.metrics  # type: ignore[attr-defined]
        assert samples(metrics, "octet_model_memory_bytes") == {frozenset(): 0}
        await client.post("/v2/models/digits/infer", json=REQUEST)
        assert samples(metrics, "octet_model_memory_bytes") == {frozenset(): 12_345}


async def test_an_answer_says_where_its_time_went(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/digits/infer", json=REQUEST)
        refusal = await client.post("/v2/models/digits/infer", json={})
    entries = dict(entry.split(";dur=") for entry in response.headers["server-timing"].split(", "))
    assert list(entries) == ["queue", "batch", "infer", "total"]
    took = {name: float(duration) for name, duration in entries.items()}
    assert 0 < took["queue"] + took["batch"] + took["infer"] <= took["total"] + 0.002  # each is rounded
    assert "server-timing" not in refusal.headers


async def test_a_refusal_is_counted_by_its_reason(tables: Tables) -> None:
    tables.push("empty")
    async with connect(tables) as client:
        for url in ("digits", "cats", "empty"):
            await client.post(f"/v2/models/{url}/infer", json={})
        metrics: Metrics = client.plane.metrics  # type: ignore[attr-defined]
    assert samples(metrics, "octet_requests_rejected_total") == {
        frozenset({("reason", "invalid")}): 2,
        frozenset({("reason", "no_worker")}): 1,
    }
    assert samples(metrics, "octet_requests_total") == {labels(protocol="rest", code="400"): 1}


async def test_what_a_client_makes_up_is_never_a_label(tables: Tables) -> None:
    async with connect(tables) as client:
        await client.post("/v2/models/made-up/infer", json=REQUEST)
        await client.post("/v2/models/digits/infer", json={"id": "made-up", "inputs": [{"name": "made-up"}]})
        metrics: Metrics = client.plane.metrics  # type: ignore[attr-defined]
    assert "made-up" not in metrics.text().decode()


def test_an_artifact_that_is_loaded_anew_before_the_old_one_goes_is_shown_as_long_as_it_is_there() -> None:
    metrics = Metrics()
    telemetry = InferenceTelemetry(metrics)
    old = telemetry.loaded(Identity("digits", 1, TARGET, "xnnpack", digest_of(b"artifact")))
    new = telemetry.loaded(Identity("digits", 1, TARGET, "xnnpack", digest_of(b"artifact"), ((8, digest_of(b"8")),)))
    old.unloaded()
    assert list(samples(metrics, "octet_artifact_info").values()) == [1.0]
    new.unloaded()
    assert samples(metrics, "octet_artifact_info") == {}


class Versions:
    """Versions of one model that come and go, and what `/metrics` then tells of them."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._loading, self._requests = InferenceTelemetry(self.metrics), RequestTelemetry(self.metrics, "rest")

    def load(self, version: int) -> LoadedModel:
        loaded = self._loading.loaded(_identity(version))
        loaded.waited(np.array([0.001]))
        loaded.computed(*np.array([[1], [1], [0.002]]))
        return loaded

    def answer(self, version: int) -> None:
        timeline = Timeline(unforeseen=500)
        timeline.end(400)
        self._requests.answered(_identity(version), timeline)

    def told(self) -> dict[str, float]:
        """Answers by version, and that there are no other series than theirs."""
        self.metrics.gather()
        answers = {dict(key)["version"]: n for key, n in samples(self.metrics, "octet_requests_total").items()}
        lines = self.metrics.text().decode().splitlines()
        assert {line.split('version="')[1].split('"')[0] for line in lines if "version=" in line} == answers.keys()
        assert {str(number) for _, number in self.metrics.statistics.known()} == answers.keys()
        return answers


def _identity(version: int) -> Identity:
    return Identity("digits", version, TARGET, "xnnpack", digest_of(b"%d" % version))


def test_versions_that_were_unloaded_are_told_of_no_more_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    about = Versions()
    monkeypatch.setattr(versions, "MOST_KEPT", 3)
    for version in range(1, 10):
        loaded = about.load(version)
        about.answer(version)
        loaded.unloaded()
    assert about.told() == {"7": 1, "8": 1, "9": 1}
    monkeypatch.setattr(versions, "KEPT_S", 0)
    assert about.told() == {}


def test_an_answer_that_comes_after_that_brings_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    about = Versions()
    loaded = about.load(1)
    about.answer(1)
    loaded.unloaded()
    about.answer(1)
    assert about.told() == {"1": 2}
    monkeypatch.setattr(versions, "KEPT_S", 0)
    assert about.told() == {}
    about.answer(1)
    loaded.computed(*np.array([[1], [1], [0.002]]))
    assert about.told() == {}


def test_a_version_that_is_loaded_again_is_told_of_while_the_old_one_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KEPT_S", 0)
    about = Versions()
    old = about.load(1)
    about.answer(1)
    new = about.load(1)
    old.unloaded()
    about.answer(1)
    assert about.told() == {"1": 2}
    new.unloaded()
    assert about.told() == {}
    about.load(1)
    about.answer(1)
    assert about.told() == {"1": 1}  # as of a process that was started again


@pytest.mark.parametrize("code", [200, 429])
def test_many_answers_are_counted_as_one_by_one(code: int) -> None:
    names = ("arrived_s", "prepared_s", "submitted_s", "taken_s", "ran_s", "ended_s")
    rows = np.cumsum(np.random.default_rng(0).uniform(1e-6, 0.1, (50, len(names))), axis=1)
    of = dict(zip(names, rows.T, strict=True)) | {"run_s": rows[:, 0]}
    if code != 200:  # nothing was read or computed
        of |= {"prepared_s": np.zeros(50), "ran_s": np.zeros(50)}
    together, alone = Versions(), Versions()
    for each in (together, alone):
        each.load(1)
    RequestTelemetry(together.metrics, "rest").all_answered(_identity(1), code, of)
    telemetry = RequestTelemetry(alone.metrics, "rest")
    for index in range(50):
        timeline = Timeline(code)
        timeline.arrived_s, timeline.prepared_s = of["arrived_s"][index], of["prepared_s"][index]
        timeline.ran_s, timeline.ended_s = of["ran_s"][index], of["ended_s"][index]
        times = (of[name][index] for name in ("submitted_s", "taken_s", "run_s", "ran_s", "ended_s"))
        timeline.stages = Stages.between(*times, requests=1, samples=1) if code == 200 else None
        telemetry.answered(_identity(1), timeline)

    def told(of: Versions) -> dict[str, float]:
        lines = (line.rpartition(" ") for line in of.metrics.text().decode().splitlines() if "digits" in line)
        return {name: float(value) for name, _, value in lines if "created" not in name}

    assert told(together) == pytest.approx(told(alone), rel=1e-12)
    statistics = [each.metrics.statistics.of("digits", 1).to_json()["inference_stats"] for each in (together, alone)]
    assert statistics[0] == statistics[1]
