"""Which artifact answers for a model: found, loaded once, replaced without a failed request, never served when bad."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from service.core.build import Build, BuildState, Stage
from service.core.errors import CorruptBlob, NotBuilt, NotFound, NotReady
from service.workers.inference import Array, Registry, Scheduling
from tests.support.runners import FunctionRunner, digits, identity
from tests.support.tables import LESSER_TARGET, TARGET, Tables

pytestmark = pytest.mark.anyio
REFRESH_S = 0.01
BLACK = [np.zeros((1, 8, 8, 1), np.uint8)]


@asynccontextmanager
async def serving(tables: Tables, on_lost: Callable[[Build], None] = lambda build: None) -> AsyncIterator[Registry]:
    registry = Registry(
        tables,
        tables,
        tables,
        targets=(TARGET, LESSER_TARGET),
        on_lost=on_lost,
        refresh_s=REFRESH_S,
        scheduling=lambda model: Scheduling(queue_size=4),
    )
    try:
        yield registry
    finally:
        await registry.close()


async def top(registry: Registry, model: str = "digits", version: int | None = None) -> int:
    """The digits model's answer to a black picture: its bias."""
    return int((await registry.infer(model, version, BLACK))[1][0])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(REFRESH_S)


async def test_a_model_is_loaded_when_first_asked_for_and_once() -> None:
    tables = Tables()
    tables.model("digits", digits)
    async with serving(tables) as registry:
        assert tables.loads == []
        await asyncio.gather(*(top(registry) for _ in range(4)), top(registry, version=1))
        assert len(tables.loads) == 1


async def test_a_loaded_model_is_warm() -> None:
    tables, runner = Tables(), digits()
    tables.model("digits", lambda: runner)
    async with serving(tables) as registry:
        served = await registry.acquire("digits")
        assert runner.calls == 1
        served.release()


async def test_a_request_to_a_loaded_model_asks_no_table() -> None:
    tables = Tables()
    tables.model("digits", digits)
    registry = Registry(tables, tables, tables, targets=(TARGET,), refresh_s=1e6)
    await top(registry)
    queries = tables.queries
    for _ in range(10):
        await top(registry)
    assert tables.queries == queries
    await registry.close()


async def test_without_a_version_the_newest_that_is_built_answers() -> None:
    tables = Tables()
    for bias in (1, 2):
        tables.built("digits", tables.push("digits"), partial(digits, bias))
    tables.push("digits")
    async with serving(tables) as registry:
        assert await top(registry) == 2
        assert await top(registry, version=1) == 1
        assert await registry.versions("digits") == [1, 2]


async def test_the_best_target_answers() -> None:
    tables = Tables()
    version = tables.push("digits")
    tables.built("digits", version, lambda: digits(1), target=TARGET)
    tables.built("digits", version, lambda: digits(2), target=LESSER_TARGET)
    async with serving(tables) as registry:
        served = await registry.acquire("digits")
        assert served.identity.target == TARGET
        served.release()


async def test_a_newer_build_takes_over() -> None:
    tables = Tables()
    tables.model("digits", lambda: digits(1))
    async with serving(tables) as registry:
        assert await top(registry) == 1
        tables.built("digits", 1, lambda: digits(2))
        await until(lambda: _is(registry, 2))
        tables.built("digits", tables.push("digits"), lambda: digits(3))
        await until(lambda: _is(registry, 3))
        assert await top(registry, version=1) == 2


async def _is(registry: Registry, bias: int) -> bool:
    return await top(registry) == bias


async def test_a_request_in_flight_is_answered_by_the_build_it_began_with() -> None:
    tables = Tables()
    tables.model("digits", lambda: digits(1))
    async with serving(tables) as registry:
        held = await registry.acquire("digits")
        tables.built("digits", 1, lambda: digits(2))
        await until(lambda: _is(registry, 2))
        assert (await held.infer(BLACK))[1][0] == 1
        held.release()


async def test_no_request_fails_while_builds_replace_each_other() -> None:
    tables = Tables()
    tables.model("digits", lambda: digits(0))
    async with serving(tables) as registry:
        answers: list[int] = []

        async def ask() -> None:
            while answers[-1:] != [20]:
                answers.append(await top(registry))
                await asyncio.sleep(0)

        asking = asyncio.create_task(ask())
        for bias in range(1, 21):
            tables.built("digits", 1, partial(digits, bias))
            await asyncio.sleep(REFRESH_S)
        async with asyncio.timeout(10):
            await asking
        assert answers == sorted(answers)


async def test_a_replaced_model_is_unloaded() -> None:
    tables = Tables()
    tables.model("replaced", lambda: digits(1))
    async with serving(tables) as registry:
        served = await registry.acquire("replaced")
        tables.built("replaced", 1, lambda: digits(2))

        async def replaced() -> bool:
            return await top(registry, "replaced") == 2

        await until(replaced)
        assert len(_threads("replaced")) == 2
        served.release()
        async with asyncio.timeout(10):
            await served.closed()
        assert len(_threads("replaced")) == 1


def _threads(model: str) -> list[str]:
    names = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if name.startswith(f"{model}-")]


async def test_a_newer_build_that_cannot_be_loaded_leaves_the_old_one_serving() -> None:
    tables = Tables()
    tables.model("digits", lambda: digits(1))
    async with serving(tables) as registry:
        await top(registry)
        broken = tables.built("digits", 1, NotReady("not verified"))
        await until(lambda: _loaded(tables, broken))
        assert await top(registry) == 1


async def _loaded(tables: Tables, build: Build) -> bool:
    return build.artifact in tables.loads


async def test_a_build_that_no_longer_counts_is_unloaded() -> None:
    tables = Tables()
    build = tables.model("digits", digits)
    async with serving(tables) as registry:
        await top(registry)
        assert build.artifact
        tables.invalidate(build.artifact)

        async def refused() -> bool:
            try:
                await top(registry)
            except NotReady:
                return True
            return False

        await until(refused)


async def test_a_table_that_cannot_be_read_leaves_loaded_models_serving(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Tables):
        broken = False

        def serving(self, model: str, version: int | None, targets: Sequence[str]) -> list[Build]:
            if self.broken:
                raise OSError("disk I/O error")
            return super().serving(model, version, targets)

    tables = Broken()
    tables.model("digits", digits)
    async with serving(tables) as registry:
        await top(registry)
        tables.broken = True

        async def noticed() -> bool:
            return "could not look for a newer build" in caplog.text

        await until(noticed)
        assert await top(registry) == 0


@pytest.mark.parametrize("error", [CorruptBlob, NotFound])
async def test_a_lost_artifact_is_never_served_and_is_built_again(error: type[CorruptBlob | NotFound]) -> None:
    tables = Tables()
    lost: list[Build] = []
    build = tables.model("digits", digits)
    tables._load[build.artifact] = _raise(error())  # type: ignore[index]
    async with serving(tables, lost.append) as registry:
        with pytest.raises(NotReady, match="damaged") as caught:
            await top(registry)
        assert "being rebuilt" in str(caught.value.hint)
        assert lost == [build]
        assert tables.builds == []
        rebuilt = replace(build, id="again")  # the same inputs give the same artifact
        tables.builds.append(rebuilt)
        tables._load[build.artifact] = digits  # type: ignore[index]
        assert await top(registry) == 0


def _raise(error: Exception) -> Callable[[], FunctionRunner]:
    def load() -> FunctionRunner:
        raise error

    return load


async def test_while_a_lost_artifact_is_built_again_the_version_before_answers() -> None:
    tables = Tables()
    tables.built("digits", tables.push("digits"), lambda: digits(1))
    tables.built("digits", tables.push("digits"), CorruptBlob())
    async with serving(tables) as registry:
        assert await top(registry) == 1


@pytest.mark.parametrize("error", [NotReady("not verified"), RuntimeError("undefined symbol")])
async def test_an_artifact_that_cannot_be_loaded_is_not_tried_at_every_request(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables()
    build = tables.model("digits", digits)
    tables._load[build.artifact] = _raise(error)  # type: ignore[index]
    async with serving(tables) as registry:
        for _ in range(3):
            with pytest.raises(NotReady, match=str(error)):
                await top(registry)
    assert len(tables.loads) == 1
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1


async def test_a_model_whose_warm_up_fails_is_not_served() -> None:
    def fail(x: Array) -> Sequence[Array]:
        raise RuntimeError("illegal instruction")

    tables = Tables()
    tables.model("broken", lambda: FunctionRunner(identity("INT32", 1).signature, fail))
    async with serving(tables) as registry:
        with pytest.raises(NotReady, match="illegal instruction"):
            await registry.acquire("broken")


async def test_an_unknown_model_and_an_unknown_version_are_not_found() -> None:
    tables = Tables()
    tables.model("digits", digits)
    async with serving(tables) as registry:
        with pytest.raises(NotFound, match="no model 'cats'"):
            await registry.acquire("cats")
        with pytest.raises(NotFound, match="no version 2"):
            await registry.acquire("digits", 2)
        with pytest.raises(NotFound):
            await registry.versions("cats")


@pytest.mark.parametrize(
    ("build", "message", "hint"),
    [
        (None, "has not been built", "POST /api/v1/models/digits/builds"),
        ({"state": BuildState.QUEUED}, r"is being built \(queued\)", "wait for build build-0"),
        ({"state": BuildState.RUNNING, "stage": Stage.CODEGEN}, r"is being built \(codegen\)", "wait for build"),
        ({"state": BuildState.FAILED, "error": {"message": "no room"}}, "could not be built: no room", "build-0"),
        ({"state": BuildState.CANCELED}, "has not been built", "POST"),
        ({"state": BuildState.SUCCEEDED, "target": "aarch64"}, "is built for aarch64", f"build it for {TARGET}"),
    ],
)
@pytest.mark.parametrize("version", [None, 1])
async def test_a_model_that_is_not_ready_says_why(
    build: dict[str, object] | None, message: str, hint: str, version: int | None
) -> None:
    tables = Tables()
    tables.push("digits")
    if build:
        tables.build("digits", 1, **build)  # type: ignore[arg-type]
    async with serving(tables) as registry:
        with pytest.raises(NotReady, match=message) as caught:
            await registry.acquire("digits", version)
        assert hint in str(caught.value.hint)
        assert isinstance(caught.value, NotBuilt) != ("is being built" in caught.value.message)


async def test_a_closed_registry_refuses_and_has_no_threads_left() -> None:
    tables = Tables()
    tables.model("closed", digits)
    async with serving(tables) as registry:
        assert registry.is_ready
        await top(registry, "closed")
        assert len(_threads("closed")) == 1
    assert not registry.is_ready
    with pytest.raises(NotReady, match="shutting down"):
        await registry.acquire("closed")
    assert _threads("closed") == []
