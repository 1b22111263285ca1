"""From a build to a model that is loaded and warm. What cannot be loaded is remembered, and left alone for a while."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from service.core.build import Build
from service.core.digest import Digest
from service.core.errors import CorruptBlob, MemoryFull, NotFound, NotReady, OctetError
from service.core.metadata import NOTHING, ModelMetadata
from service.core.queueing import Scheduling
from service.workers.inference.buckets import BucketRunner
from service.workers.inference.memory import Memory, Weight, together
from service.workers.inference.observer import Identity
from service.workers.inference.ports import Artifacts, Builds
from service.workers.inference.runner import Runner
from service.workers.inference.served import Served
from service.workers.inference.single_flight import SingleFlight
from service.workers.inference.variants import Variants

_logger = logging.getLogger(__name__)
_RETRY_LOAD_S = 10.0  # an artifact that could not be loaded is not tried again for this long
_PATIENCE_S = 5.0  # a model waits this long for others to be out of use, so that it has their memory
_LOOK_AGAIN_S = 0.005  # most predictions take less


class _NoRoom(Exception):
    """A model does not fit; the argument is the error to show."""


class Loader:
    """The models in memory, by what they are. For one event loop; whatever blocks runs in a thread.

    Attributes:
        loaded: those that are ready.
    """

    def __init__(
        self,
        builds: Builds,
        artifacts: Artifacts,
        scheduling: Callable[[str], Scheduling],
        start: Callable[[Identity, Variants], Served],
        on_lost: Callable[[Build], None],
        forget: Callable[[Served], None],
        memory: Memory,
    ) -> None:
        """
        Args:
            scheduling: the rules of each model, by its name.
            start: makes a model take requests.
            on_lost: called in a thread with a build whose artifact is damaged or gone.
            forget: sends no more requests to what has to make room for another.
            memory: what all models together may take.
        """
        self._builds, self._artifacts = builds, artifacts
        self._scheduling, self._start = scheduling, start
        self._on_lost, self._forget = on_lost, forget
        self._memory = memory
        self._making_room = asyncio.Lock()
        self._receipts: dict[Served, object] = {}
        self._leaving: dict[Served, asyncio.Task[None]] = {}
        self._loading: SingleFlight[Identity, Served] = SingleFlight()
        self._failed: dict[Digest, tuple[float, OctetError]] = {}
        self._metadata: dict[Digest, ModelMetadata] = {}
        self.loaded: dict[Identity, Served] = {}

    async def load(self, build: Build, identity: Identity) -> Served:
        """What is loaded as `identity`, or is from now on.

        Raises:
            OctetError: it cannot be loaded here, now or when it was last tried.
        """
        if served := self.loaded.get(identity):
            return served
        retry_at, failure = self._failed.get(identity.artifact, (0.0, None))
        if failure and monotonic() < retry_at:
            raise failure
        return await self._loading.join(identity, lambda: self._load_now(build, identity))

    def unload(self, served: Served) -> None:
        """Takes it out of memory as soon as no request holds it."""
        if self.holds(served):
            _logger.info("unloading %s version %d", served.identity.model, served.identity.version)
            del self.loaded[served.identity]
            served.retire()
            self._leaving[served] = asyncio.create_task(self._see_off(served))

    def holds(self, served: Served) -> bool:
        """Whether it is loaded still."""
        return self.loaded.get(served.identity) is served

    def in_memory(self) -> list[Served]:
        """Those that are ready, and those whose last requests are being answered. From any thread."""
        return [*list(self.loaded.values()), *list(self._leaving)]

    def is_usable(self, artifact: Digest) -> bool:
        """Whether nothing is known against it."""
        return artifact not in self._failed

    def is_loading(self, model: str, version: int) -> bool:
        return any((identity.model, identity.version) == (model, version) for identity in self._loading)

    def failure(self, artifact: Digest) -> OctetError | None:
        """Why an artifact could not be loaded when it was last tried."""
        return self._failed.get(artifact, (0.0, None))[1]

    def file_metadata(self, artifact: Digest) -> ModelMetadata:
        """What the model file of a loaded artifact says of itself; nothing where that is damaged. Reads a file."""
        if artifact not in self._metadata:
            try:
                self._metadata[artifact] = self._artifacts.file_metadata(artifact)
            except OctetError as error:
                _logger.warning("the facts of artifact %s cannot be read: %s", artifact, error)
                self._metadata[artifact] = NOTHING
        return self._metadata[artifact]

    def forgive(self, artifact: Digest) -> None:
        """Lets an artifact be tried again at once, whatever it did before. Writes a file: to be called in a thread."""
        self._failed.pop(artifact, None)
        self._artifacts.forgive(artifact)

    async def close(self) -> None:
        """Ends what is being loaded, and waits for the requests that hold what is."""
        await self._loading.end()
        for served in list(self.loaded.values()):
            self.unload(served)
        await asyncio.gather(*self._leaving.values())

    async def _load_now(self, build: Build, identity: Identity) -> Served:
        _logger.info("loading %s version %d: %s", identity.model, identity.version, identity.artifact)
        try:
            weight = await asyncio.to_thread(self._weigh, identity)
            receipt = await self._take_room(identity, weight)
            try:
                served = await self._start_warm(identity)
            except BaseException:
                self._memory.give_back(receipt)
                raise
        except _NoRoom as error:
            raise error.args[0] from None  # nothing is wrong with the artifact
        except (CorruptBlob, NotFound) as error:
            raise await self._lost(build, identity) from error
        except Exception as error:  # whatever a library does when it is loaded: this model cannot run, others can
            failure = self._note(identity.artifact, error)
            _logger.exception("artifact %s cannot be served: %s", identity.artifact, failure)
            if failure is error:
                raise
            raise failure from error
        self._failed.pop(identity.artifact, None)
        self._receipts[served] = receipt
        self.loaded[served.identity] = served
        return served

    async def _start_warm(self, identity: Identity) -> Served:
        variants, identity = await asyncio.to_thread(self._load_variants, identity)
        served = self._start(identity, variants)
        try:
            await served.warm()
        except BaseException:
            served.retire()
            raise
        return served

    def _weigh(self, identity: Identity) -> Weight:
        """All its sizes; raises what `Artifacts.weigh` raises for the first."""
        weights = [self._artifacts.weigh(identity.artifact)]
        for artifact in (*(each for _, each in identity.variants), *identity.buckets):
            with suppress(CorruptBlob, NotFound):  # as `_load_variants` will find
                weights.append(self._artifacts.weigh(artifact))
        one = together(weights)
        return replace(one, own_bytes=one.own_bytes * self._scheduling(identity.model).instances)

    async def _take_room(self, identity: Identity, weight: Weight) -> object:
        """Takes memory for a model; those that were not used for longest, and are not now, make room for it.

        Raises:
            _NoRoom: it is too large, or what is loaded is in use and stays so.
        """
        limit_bytes = self._memory.limit_bytes
        what = f"version {identity.version} of model {identity.model!r} needs {_mb(weight.total_bytes)}"
        hint = "raise the server's OCTET_MODEL_MEMORY_BYTES"
        if limit_bytes and weight.total_bytes > limit_bytes:
            raise _NoRoom(NotReady(f"{what}; the limit for all models together is {_mb(limit_bytes)}", hint=hint))
        until_s = monotonic() + _PATIENCE_S
        async with self._making_room:
            while not self._memory.has_room(weight):
                if monotonic() > until_s:
                    used = _mb(self._memory.used_bytes)
                    raise _NoRoom(NotReady(f"{what}, and models in use take {used} of {_mb(limit_bytes)}", hint=hint))
                await self._unload_least_recent()
            return self._memory.take(weight)

    async def _unload_least_recent(self) -> None:
        """Unloads a model that nobody holds; where there is none, waits a little."""
        unused = [served for served in self.loaded.values() if not served.is_held]
        if not unused:
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        served = min(unused, key=lambda each: each.used_s)
        _logger.info("%s version %d makes room", served.identity.model, served.identity.version)
        self._forget(served)
        self.unload(served)
        await self._leaving[served]

    async def _see_off(self, served: Served) -> None:
        await served.closed()
        self._memory.give_back(self._receipts.pop(served))
        del self._leaving[served]

    def _load_variants(self, identity: Identity) -> tuple[Variants, Identity]:
        """The model in all its sizes; but for one sample, those that cannot be loaded are left out from now on."""
        threads = self._scheduling(identity.model).threads
        one = self._artifacts.load(identity.artifact, threads)
        found = {
            artifact: runner
            for artifact in (*(each for _, each in identity.variants), *identity.buckets)
            if (runner := self._load_variant(artifact, threads)) is not None
        }
        variants = tuple((batch, artifact) for batch, artifact in identity.variants if artifact in found)
        buckets = tuple(artifact for artifact in identity.buckets if artifact in found)
        first = BucketRunner([one, *(found[artifact] for artifact in buckets)]) if buckets else one
        loaded = replace(identity, variants=variants, buckets=buckets)
        return Variants(first, {batch: found[artifact] for batch, artifact in variants}), loaded

    def _load_variant(self, artifact: Digest, threads: int) -> Runner | None:
        """One size of a model; None where it cannot be loaded, but the others can."""
        try:
            return self._artifacts.load(artifact, threads)
        except (CorruptBlob, NotFound):
            _logger.exception("artifact %s, of one size of a model, is damaged or gone", artifact)
            self._builds.invalidate(artifact)
        except Exception as error:  # as for the model itself
            _logger.exception("artifact %s, of one size of a model, cannot be served", artifact)
            self._note(artifact, error)
        return None

    def _note(self, artifact: Digest, error: Exception) -> OctetError:
        failure = error if isinstance(error, OctetError) else _understood(error)
        self._failed[artifact] = monotonic() + _RETRY_LOAD_S, failure
        return failure

    async def _lost(self, build: Build, identity: Identity) -> NotReady:
        _logger.error("artifact %s is damaged or gone, and will be built again", identity.artifact)
        await asyncio.to_thread(self._builds.invalidate, identity.artifact)
        await asyncio.to_thread(self._on_lost, build)
        return NotReady(
            f"the artifact of model {identity.model!r} was damaged in the store",
            hint="it is being rebuilt; try again later",
        )


def _understood(error: Exception) -> NotReady:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        hint = "give the server more memory, or this model fewer instances"
        return MemoryFull(f"there is not enough memory for it: {error}", hint=hint, retry_after_s=_RETRY_LOAD_S)
    return NotReady(f"{type(error).__name__}: {error}", retry_after_s=_RETRY_LOAD_S)


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
