"""Tests of the life of a model's samples: which requests are sampled, and when the build that counts is requested.

The artifact that counts is replaced. `tests/integration/serve/test_saturation.py` runs a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from service.core.builds.build import Build, BuildState
from service.core.digest import Digest, digest_of
from service.core.errors import BuildCrashed, NotReady, Unsupported
from service.core.models.ranges import LENGTH, Counts, StoredRange
from service.core.models.signature import Bounds, ModelSignature, State, TensorSpec
from service.workers import sampling
from service.workers.counting import CountingArtifact
from service.workers.data_plane.messages import Sample
from service.workers.inference.identity import Identity
from service.workers.inference.served import Served
from service.workers.sampling import Sampler
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio

SIGNATURE = ModelSignature((TensorSpec("x", "INT8", (1, 4)),), (TensorSpec("y", "INT8", (1, 4)),))
IDENTITY = Identity("m", 3, "x86-64-v3", "litert-reference", digest_of(b"served"))
RANGES = (StoredRange("a", 0.5, 0, -128, 127),)
BUILD = Build(
    "b1", digest_of(b"key"), "m", 3, digest_of(b"file"), IDENTITY.target, IDENTITY.numerics, BuildState.QUEUED,
    datetime(2026, 1, 1, tzinfo=UTC), options={"counts": True},
)  # fmt: skip
DATA = b"1234"


class Artifact:
    """Counts samples without running anything."""

    digest, signature, ranges = digest_of(b"counting"), SIGNATURE, RANGES

    def __init__(self) -> None:
        self.counted: list[list[bytes]] = []
        self.error: Exception | None = None

    def count(self, samples: list[bytes], poll: Callable[[], None]) -> list[Counts]:
        poll()
        if self.error is not None:
            raise self.error
        self.counted.append(samples)
        return [(0,) * LENGTH]


class Bench:
    """A sampler and everything that it uses."""

    def __init__(self, signature: ModelSignature = SIGNATURE) -> None:
        self.served = [Served(7, IDENTITY, signature)]
        self.build: Build | None = None
        self.requested = 0
        self.refusal: Exception | None = None
        self.shares: list[dict[int, float]] = []
        self.stored: list[tuple[Any, ...]] = []
        self.artifact = Artifact()
        self.opening: Exception | None = None
        self.sampler = Sampler(0.25, self, self, self, self, lambda: False)

    def find(self, its: Identity) -> Build | None:
        return self.build

    def request(self, its: Identity) -> Build:
        self.requested += 1
        if self.refusal is not None:
            raise self.refusal
        self.build = BUILD
        return BUILD

    def open(self, artifact: Digest) -> CountingArtifact:
        if self.opening is not None:
            raise self.opening
        return cast(CountingArtifact, self.artifact)

    def add(self, *values: Any) -> None:
        self.stored.append(values)

    def in_memory(self) -> list[Served]:
        return self.served

    def order(self, members: Any) -> None:
        assert members["type"] == "samples"
        self.shares.append({each["key"]: each["share"] for each in members["models"]})

    def succeed(self) -> None:
        self.build = replace(BUILD, state=BuildState.SUCCEEDED, artifact=Artifact.digest)

    def sample(self, data: bytes = DATA, key: int = 7, dropped: int = 0) -> None:
        self.sampler.sampled(Sample(key=key, dropped=dropped), data)

    async def is_sampled(self, wanted: bool) -> None:
        """Waits until the latest order contains the model, or does not."""
        count = len(self.shares)
        expected = {7: 0.25} if wanted else {}
        await eventually_async(lambda: self.shares[count:][-1:] == [expected])


@contextmanager
def running(bench: Bench) -> Iterator[Bench]:
    task = asyncio.ensure_future(bench.sampler.run())
    try:
        yield bench
    finally:
        task.cancel()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_LOOK_S", 0.01)
    monkeypatch.setattr(sampling, "_SEARCH_S", 0.01)
    monkeypatch.setattr(sampling, "_COUNT_S", 0.01)


async def test_a_model_without_samples_requests_no_build() -> None:
    with running(Bench()) as bench:
        await bench.is_sampled(True)
        assert bench.requested == 0


async def test_the_first_sample_requests_the_build_and_ends_the_sampling_until_it_has_succeeded() -> None:
    with running(Bench()) as bench:
        await bench.is_sampled(True)
        bench.sample()
        await bench.is_sampled(False)
        await eventually_async(lambda: bench.requested == 1)
        bench.succeed()
        await bench.is_sampled(True)
        assert bench.requested == 1
        bench.sample(b"abcd")
        await eventually_async(lambda: bool(bench.stored))
    assert bench.artifact.counted == [[b"abcd"]]
    assert bench.stored == [("m", 3, str(Artifact.digest), RANGES, [(0,) * LENGTH], 1, 0)]


async def test_a_build_of_an_earlier_process_is_used() -> None:
    bench = Bench()
    bench.succeed()
    with running(bench):
        await bench.is_sampled(True)
        bench.sample()
        await eventually_async(lambda: bool(bench.stored))
    assert bench.requested == 0


async def test_a_model_whose_values_cannot_be_counted_is_not_sampled_any_more() -> None:
    bench = Bench()
    bench.refusal = Unsupported("the model has no activations with fixed ranges")
    with running(bench):
        await bench.is_sampled(True)
        bench.sample()
        await bench.is_sampled(False)
        await eventually_async(lambda: bench.requested == 1)
        await asyncio.sleep(0.05)
        assert bench.requested == 1


async def test_a_model_with_state_is_not_sampled() -> None:
    state = State(TensorSpec("total", "INT8", (1,)), b"\0")
    with running(Bench(replace(SIGNATURE, states=(state,)))) as bench:
        await bench.is_sampled(False)


async def test_an_artifact_that_waits_for_its_verification_is_used_later() -> None:
    bench = Bench()
    bench.succeed()
    bench.opening = NotReady("waits for a worker")
    with running(bench):
        await bench.is_sampled(False)
        bench.opening = None
        await bench.is_sampled(True)


async def test_samples_beyond_the_limit_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.succeed()
    with running(bench):
        await bench.is_sampled(True)
        for _ in range(sampling._MOST_TOGETHER + 5):
            bench.sample(dropped=1)
        await eventually_async(lambda: bool(bench.stored))
    assert bench.stored[0][-2:] == (sampling._MOST_TOGETHER, sampling._MOST_TOGETHER + 10)


async def test_a_newer_version_counts_the_samples_of_the_older_one_too() -> None:
    newer = replace(IDENTITY, version=4)
    bench = Bench()
    others = replace(newer, version=5), replace(newer, model="other"), replace(IDENTITY, version=2)
    wider = replace(SIGNATURE, inputs=(TensorSpec("x", "INT8", (1, 5)),))
    signatures = wider, SIGNATURE, SIGNATURE
    requantized = replace(SIGNATURE.inputs[0], bounds=Bounds(-3.0, 3.0))
    bench.served.append(Served(8, newer, replace(SIGNATURE, inputs=(requantized,))))
    bench.served += [Served(9 + at, *each) for at, each in enumerate(zip(others, signatures, strict=True))]
    bench.succeed()
    with running(bench):
        await eventually_async(lambda: len(bench.shares) > 0 and 8 in bench.shares[-1])
        bench.sample()
        await eventually_async(lambda: len(bench.stored) == 2)
        await asyncio.sleep(0.05)
    assert sorted(each[:2] for each in bench.stored) == [("m", 3), ("m", 4)]


@pytest.mark.parametrize(("data", "key"), [(b"123", 7), (b"12345", 7), (b"", 7), (DATA, 8)])
async def test_samples_that_do_not_fit_a_model_are_ignored(data: bytes, key: int) -> None:
    bench = Bench()
    bench.succeed()
    with running(bench):
        await bench.is_sampled(True)
        bench.sample(data, key)
        bench.sample(b"good")
        await eventually_async(lambda: bool(bench.stored))
    assert bench.artifact.counted == [[b"good"]]


async def test_an_artifact_that_crashes_repeatedly_is_not_used_any_more() -> None:
    bench = Bench()
    bench.succeed()
    bench.artifact.error = BuildCrashed("a signal")
    with running(bench):
        for _ in range(sampling._MOST_FAILURES):
            await bench.is_sampled(True)
            bench.sample()
            await asyncio.sleep(0.05)
        await bench.is_sampled(False)
    assert bench.stored == []
