"""Tests of the artifact that serves a model: it is found, loaded once, replaced without a gap, and never served if it
is bad.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from service.core.builds.build import Build, BuildState, Stage
from service.core.digest import Digest
from service.core.errors import CorruptBlob, DatabaseLost, DatabaseUnreachable, NotBuilt, NotFound, NotReady
from service.workers.inference import Reference, Registry
from tests.support.fake_plane import Blank, FakePlane, answerer
from tests.support.tables import LESSER_TARGET, TARGET, Tables
from tests.support.waiting import eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio


async def answering(registry: Registry, plane: FakePlane, model: str = "m", reference: Reference = None) -> Digest:
    """Returns the artifact that serves a model."""
    return plane.artifact((await answerer(registry, plane, model, reference))["main"])


def is_switched(plane: FakePlane, build: Build) -> bool:
    route = plane.routed("m")
    return route is not None and plane.artifact(route["main"]) == build.artifact


async def test_a_model_is_loaded_once_at_the_first_request(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    build = tables.model("m", blank)
    async with serving(tables) as registry:
        assert plane.loads == []
        await asyncio.gather(*(registry.resolve("m") for _ in range(4)), registry.resolve("m", 1))
        assert plane.loads == [build.artifact]
        assert plane.routed("m") == {**plane.routed("m", 1), "version": ""}  # type: ignore[dict-item]


async def test_a_resolved_name_reads_no_table(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.model("m", blank)
    async with serving(tables, 1e6) as registry:
        await registry.resolve("m")
        queries = tables.queries
        await registry.resolve("m")
        assert tables.queries == queries


async def test_without_a_version_the_newest_built_one_is_served(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    first, second = (tables.built("m", tables.push("m"), blank) for _ in range(2))
    tables.push("m")
    async with serving(tables) as registry:
        assert await answering(registry, plane) == second.artifact
        assert await answering(registry, plane, reference=1) == first.artifact
        assert await registry.versions("m") == [1, 2]
        assert plane.routed("m")["versions"] == ["1", "2"]  # type: ignore[index]


async def test_the_best_target_is_served(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    version = tables.push("m")
    best = tables.built("m", version, blank, target=TARGET)
    tables.built("m", version, blank, target=LESSER_TARGET)
    async with serving(tables) as registry:
        assert await answering(registry, plane) == best.artifact


async def test_a_newer_build_takes_over_when_it_is_loaded_and_the_older_is_unloaded(
    plane: FakePlane, serving: Serving
) -> None:
    tables = Tables()
    first = tables.model("m", blank)
    async with serving(tables) as registry:
        assert await answering(registry, plane) == first.artifact
        for version in (1, tables.push("m")):
            plane.may_load.clear()
            newer = tables.built("m", version, blank)
            await asyncio.sleep(0.05)
            assert not is_switched(plane, newer)  # until then, the old build serves the model
            assert plane.routed("m") is not None
            plane.may_load.set()
            await eventually_async(partial(is_switched, plane, newer))
            await eventually_async(lambda: len(plane.models) == 1)


async def test_a_replaced_model_is_unloaded_after_its_last_request(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.model("m", blank)
    async with serving(tables) as registry:
        route = await answerer(registry, plane, "m")
        with plane.using(route["main"]):
            newer = tables.built("m", 1, blank)
            await eventually_async(partial(is_switched, plane, newer))
            assert [served.key for served in registry.in_memory()] == [plane.routed("m")["main"], route["main"]]  # type: ignore[index]
        await eventually_async(lambda: len(registry.in_memory()) == 1)


async def test_if_a_newer_build_cannot_be_loaded_the_old_one_stays_in_use(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    first = tables.model("m", blank)
    async with serving(tables) as registry:
        await registry.resolve("m")
        broken = tables.built("m", 1, NotReady("not verified"))
        await eventually_async(lambda: broken.artifact in tables.loads)
        assert await answering(registry, plane) == first.artifact


async def test_an_invalidated_build_is_unloaded(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    build = tables.model("m", blank)
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert build.artifact
        tables.invalidate(build.artifact)
        await eventually_async(lambda: plane.routed("m") is None and not plane.models)
        with pytest.raises(NotReady):
            await registry.resolve("m")


@pytest.mark.parametrize("error", [OSError("disk I/O error"), DatabaseUnreachable(), DatabaseLost()], ids=type)
async def test_if_a_table_cannot_be_read_loaded_models_stay_in_use(
    plane: FakePlane, serving: Serving, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class Broken(Tables):
        broken, asked = False, 0

        def serving(self, model: str, version: int | None, targets: Sequence[str]) -> list[Build]:
            if self.broken:
                self.asked += 1
                raise error
            return super().serving(model, version, targets)

    tables = Broken()
    build = tables.model("m", blank)
    async with serving(tables) as registry:
        await registry.resolve("m")
        tables.broken = True
        await eventually_async(lambda: tables.asked > 2)
        assert is_switched(plane, build)
    is_said = "cannot look for a newer build" in caplog.text
    assert is_said != isinstance(error, DatabaseUnreachable), "the database module itself logs an outage, once"


@pytest.mark.parametrize("error", [CorruptBlob, NotFound])
async def test_a_lost_artifact_is_never_served_and_is_rebuilt(
    plane: FakePlane, serving: Serving, error: type[CorruptBlob | NotFound]
) -> None:
    tables = Tables()
    lost: list[Build] = []
    build = tables.model("m", blank)
    tables._load[build.artifact] = _raise(error())  # type: ignore[index]
    async with serving(tables, on_lost=lost.append) as registry:
        with pytest.raises(NotReady, match="damaged") as caught:
            await registry.resolve("m")
        assert "being rebuilt" in str(caught.value.hint)
        assert lost == [build]
        assert tables.builds == []
        tables.builds.append(replace(build, id="again"))  # the same inputs give the same artifact
        tables._load[build.artifact] = blank  # type: ignore[index]
        assert await answering(registry, plane) == build.artifact


def _raise(error: Exception) -> Callable[[], Blank]:
    def load() -> Blank:
        raise error

    return load


async def test_while_a_lost_artifact_is_rebuilt_the_previous_version_is_served(
    plane: FakePlane, serving: Serving
) -> None:
    tables = Tables()
    first = tables.built("m", tables.push("m"), blank)
    tables.built("m", tables.push("m"), CorruptBlob())
    async with serving(tables) as registry:
        assert await answering(registry, plane) == first.artifact


@pytest.mark.parametrize("error", [NotReady("not verified"), RuntimeError("undefined symbol")])
async def test_an_artifact_that_cannot_be_loaded_is_not_retried_at_every_request(
    serving: Serving, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables()
    build = tables.model("m", blank)
    tables._load[build.artifact] = _raise(error)  # type: ignore[index]
    async with serving(tables) as registry:
        for _ in range(3):
            with pytest.raises(NotReady, match=str(error)):
                await registry.resolve("m")
    assert len(tables.loads) == 1
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1


async def test_a_model_that_the_data_plane_cannot_load_is_not_served(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    build = tables.model("m", blank)
    assert build.artifact
    plane.failures[build.artifact] = NotReady("illegal instruction")
    async with serving(tables) as registry:
        with pytest.raises(NotReady, match="model 'm' cannot be loaded here: illegal instruction"):
            await registry.resolve("m")
        assert str(registry.failure(build.artifact)) == "illegal instruction"
        assert plane.routed("m") is None


async def test_an_unknown_model_and_an_unknown_version_are_not_found(serving: Serving) -> None:
    tables = Tables()
    tables.model("m", blank)
    async with serving(tables) as registry:
        with pytest.raises(NotFound, match="no model 'cats'"):
            await registry.resolve("cats")
        with pytest.raises(NotFound, match="no version 2"):
            await registry.resolve("m", 2)
        with pytest.raises(NotFound):
            await registry.versions("cats")


@pytest.mark.parametrize(
    ("build", "message", "hint"),
    [
        (None, "has not been built", "POST /api/v1/models/m/builds"),
        ({"state": BuildState.QUEUED}, r"is being built \(queued\)", "wait for build build-0"),
        ({"state": BuildState.RUNNING, "stage": Stage.CODEGEN}, r"is being built \(codegen\)", "wait for build"),
        ({"state": BuildState.FAILED, "error": {"message": "no room"}}, "could not be built: no room", "build-0"),
        ({"state": BuildState.CANCELED}, "has not been built", "POST"),
        ({"state": BuildState.SUCCEEDED, "target": "aarch64"}, "is built for aarch64", f"build it for {TARGET}"),
    ],
)
@pytest.mark.parametrize("version", [None, 1])
async def test_a_model_that_is_not_ready_has_a_reason(
    serving: Serving, build: dict[str, object] | None, message: str, hint: str, version: int | None
) -> None:
    tables = Tables()
    tables.push("m")
    if build:
        tables.build("m", 1, **build)  # type: ignore[arg-type]
    async with serving(tables) as registry:
        with pytest.raises(NotReady, match=message) as caught:
            await registry.resolve("m", version)
        assert hint in str(caught.value.hint)
        assert isinstance(caught.value, NotBuilt) != ("is being built" in caught.value.message)


async def test_a_closed_registry_refuses_requests_and_keeps_models_loaded(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    build = tables.model("m", blank)
    async with serving(tables) as registry:
        assert registry.is_ready
        await registry.resolve("m")
    assert not registry.is_ready
    with pytest.raises(NotReady, match="shutting down"):
        await registry.resolve("others")
    assert is_switched(plane, build)
