"""Counts the values that a share of the answered requests causes in the served models (docs/adr/0065-counting.md).

The data plane sends the inputs of a sampled request after its response. The first sample of a model requests the build
of a second artifact, which counts. From then on, samples wait in this process's memory, and that artifact computes them
in a sandboxed child at the lowest priority: every `_COUNT_S`, at most `_MOST_TOGETHER` for each model. Samples that
find the queue full are dropped. Inputs are never written to a file; only the counts are stored, in the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol

from service.core.builds.build import Build, BuildCanceled
from service.core.digest import Digest
from service.core.errors import NotFound, NotReady, OctetError, Unsupported
from service.core.models.ranges import Counts, StoredRange
from service.core.models.signature import ModelSignature
from service.core.system.outage import log_trouble
from service.workers.counting import CountingArtifact
from service.workers.data_plane import orders
from service.workers.data_plane.messages import Sample
from service.workers.inference.identity import Identity
from service.workers.inference.served import Served

_logger = logging.getLogger(__name__)
_LOOK_S = 1.0
_SEARCH_S = 5.0  # how often a build that has not ended is looked up
_COUNT_S = 5.0  # how often the samples of a model are counted
_MOST_TOGETHER = 16
_MOST_WAITING_BYTES = 64 << 20  # the limit of all inputs that wait
_MOST_FAILURES = 3  # an artifact that fails this often is not used any more


class Builds(Protocol):
    def find(self, its: Identity) -> Build | None:
        """Returns the latest build that counts the values of a served model, in any state."""

    def request(self, its: Identity) -> Build:
        """Requests the build that counts the values of a served model.

        Raises:
            Unsupported: the values of the model cannot be counted.
            NotFound: the version has been deleted.
        """

    def open(self, artifact: Digest) -> CountingArtifact:
        """Reads an artifact that counts.

        Raises:
            NotReady: the artifact has not been verified.
            Unsupported: it cannot be used.
        """


class Live(Protocol):
    def add(
        self,
        model: str,
        version: int,
        artifact: str,
        ranges: tuple[StoredRange, ...],
        counts: list[Counts],
        samples: int,
        dropped: int,
    ) -> None:
        """Stores counts."""


class Registry(Protocol):
    def in_memory(self) -> list[Served]:
        """Returns the loaded models."""


class Plane(Protocol):
    def order(self, members: orders.Members) -> None:
        """Sends an order to the data plane."""


@dataclass
class _Counter:
    """The artifact that counts the values of a model, and the samples that wait for it."""

    artifact: CountingArtifact
    waiting: list[bytes] = field(default_factory=list)
    dropped: int = 0
    failures: int = 0
    counted_s: float = float("-inf")


@dataclass
class _Sampled:
    """A served model.

    Attributes:
        counter: None before the build that counts has succeeded.
        has_sample: true if a sample has arrived.
        is_waiting: true while the build that counts has not ended.
        is_off: true if the values of the model cannot be counted.
    """

    served: Served
    counter: _Counter | None = None
    has_sample: bool = False
    is_waiting: bool = False
    is_off: bool = False
    searched_s: float = float("-inf")

    @property
    def needs_samples(self) -> bool:
        is_requested = self.counter is None and (self.has_sample or self.is_waiting)
        return not self.is_off and not is_requested

    @property
    def is_due(self) -> bool:
        """True if the tables may contain news about the build that counts."""
        if self.counter is not None or self.is_off:
            return False
        is_first = self.searched_s == float("-inf")
        is_asked = self.has_sample or self.is_waiting
        return is_first or (is_asked and monotonic() - self.searched_s >= (_SEARCH_S if self.is_waiting else 0))


class Sampler:
    """Receives samples, and counts their values. For one event loop; blocking work runs in a thread."""

    def __init__(
        self,
        share: float,
        builds: Builds,
        live: Live,
        registry: Registry,
        plane: Plane,
        is_stopping: Callable[[], bool],
    ) -> None:
        """
        Args:
            share: the fraction of requests that are sampled.
            is_stopping: returns true if this process is about to end. A count in progress is then ended.
        """
        self._share, self._builds = share, builds
        self._live, self._registry, self._plane, self._is_stopping = live, registry, plane, is_stopping
        self._models: dict[int, _Sampled] = {}  # by the key of the served model

    async def run(self) -> None:
        """Requests builds that count, and counts the samples that arrive, until canceled."""
        while True:
            try:
                await self._follow()
                for each in list(self._models.values()):
                    if each.counter is not None and monotonic() - each.counter.counted_s >= _COUNT_S:
                        await self._count(each, each.counter)
            except Exception as error:  # the database may be unreachable for a while
                log_trouble(_logger, error, "cannot count the values of sampled requests")
            await asyncio.sleep(_LOOK_S)

    def sampled(self, sample: Sample, data: bytes) -> None:
        """Queues a sample for its model and for newer versions, or drops it if a queue is full. The data plane runs
        models' code, so its messages may contain anything.
        """
        model = self._models.get(sample["key"])
        if model is None:
            return
        counter = model.counter
        if counter is not None and isinstance(sample["dropped"], int) and 0 < sample["dropped"] < 1 << 31:
            counter.dropped += sample["dropped"]
        for each in (model, *self._newer_than(model)):
            self._queue(each, data)

    def _newer_than(self, model: _Sampled) -> list[_Sampled]:
        """Returns the newer versions that are loaded, such as a canary. They count the same inputs."""
        its, inputs = model.served.identity, _layout_of(model.served.signature)
        return [
            each
            for each in self._models.values()
            if each.served.identity.model == its.model
            and each.served.identity.version > its.version
            and _layout_of(each.served.signature) == inputs
        ]

    def _queue(self, model: _Sampled, data: bytes) -> None:
        if model.is_off:
            return
        model.has_sample = True
        counter = model.counter
        if counter is None:
            return
        counters = [each.counter for each in self._models.values() if each.counter is not None]
        waiting_bytes = sum(len(each) for other in counters for each in other.waiting)
        if len(data) != _input_bytes(model.served.signature):
            _logger.warning("a sample of %s has %d bytes", model.served.identity.model, len(data))
        elif len(counter.waiting) >= _MOST_TOGETHER or waiting_bytes + len(data) > _MOST_WAITING_BYTES:
            counter.dropped += 1
        else:
            counter.waiting.append(data)

    async def _follow(self) -> None:
        """Finds or requests the builds that count, and sends the data plane the models to sample."""
        served = {each.key: each for each in self._registry.in_memory()}
        self._models = {key: self._models.get(key) or _Sampled(each) for key, each in served.items()}
        for model in self._models.values():
            if not model.is_due:
                continue
            its = model.served.identity
            try:
                await asyncio.to_thread(self._search, model)
            except (NotFound, Unsupported) as error:
                model.is_off = True
                _logger.info("the values of %s version %d are not counted: %s", its.model, its.version, error)
            model.searched_s = monotonic()
        self._plane.order(
            orders.samples({key: self._share for key, each in self._models.items() if each.needs_samples})
        )

    def _search(self, model: _Sampled) -> None:
        """Updates the state of a model from the tables. Requests the build that counts if a sample has arrived.

        Raises:
            Unsupported, NotFound: the values of the model cannot be counted.
        """
        its = model.served.identity
        signature = model.served.signature
        if signature.buckets or signature.states:
            raise Unsupported("it has several shapes, or keeps state between calls")
        build = self._builds.find(its)
        if build is not None and not build.state.is_final:
            model.is_waiting = True
        elif build is not None and build.artifact is not None:
            model.is_waiting = True
            self._use(model, build.artifact)
        elif model.has_sample:
            build = self._builds.request(its)
            model.is_waiting = True
            _logger.info("build %s will count the values of %s version %d", build.id, its.model, its.version)

    def _use(self, model: _Sampled, digest: Digest) -> None:
        """Sets the counter of a model, unless its artifact waits for its verification."""
        its = model.served.identity
        try:
            artifact = self._builds.open(digest)
        except NotReady:
            return
        if _layout_of(artifact.signature) != _layout_of(model.served.signature):
            raise Unsupported(f"artifact {digest} was built for other inputs")
        model.counter = _Counter(artifact)
        _logger.info("counting the values of %s version %d", its.model, its.version)

    async def _count(self, model: _Sampled, counter: _Counter) -> None:
        """Counts the samples that wait, and stores the counts."""
        if not counter.waiting:
            return
        counter.counted_s = monotonic()
        samples, counter.waiting = counter.waiting, []
        dropped, counter.dropped = counter.dropped, 0
        its = model.served.identity
        try:
            counts = await asyncio.to_thread(counter.artifact.count, samples, self._poll)
        except BuildCanceled:
            return
        except OctetError as error:
            counter.failures += 1
            model.is_off = counter.failures >= _MOST_FAILURES
            _logger.warning("cannot count the values of %s version %d: %s", its.model, its.version, error)
            return
        digest, ranges = str(counter.artifact.digest), counter.artifact.ranges
        add = partial(self._live.add, its.model, its.version, digest, ranges, counts)
        await asyncio.to_thread(add, len(samples), dropped)

    def _poll(self) -> None:
        if self._is_stopping():
            raise BuildCanceled


def _layout_of(signature: ModelSignature) -> list[tuple[str, str, tuple[int, ...]]]:
    """Returns what determines the bytes of a sample. The inputs' quantization does not."""
    return [(spec.name, spec.datatype, spec.shape) for spec in signature.inputs]


def _input_bytes(signature: ModelSignature) -> int:
    total = 0
    for spec in signature.inputs:
        size = spec.dtype.itemsize
        for dim in spec.shape:
            size *= dim
        total += size
    return total
