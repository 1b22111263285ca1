"""From a build to a model that the data plane has loaded. What cannot be is remembered, and left alone for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from service.core.build import Build
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound, NotReady, OctetError, Restarting
from service.core.metadata import NOTHING, ModelMetadata
from service.core.queueing import Scheduling
from service.core.target import Device
from service.workers.data_plane import orders
from service.workers.inference.failures import Failures
from service.workers.inference.identity import Identity
from service.workers.inference.memory import Memory, Weight, together
from service.workers.inference.ports import Artifacts, Builds, Plane
from service.workers.inference.served import Served
from service.workers.inference.single_flight import SingleFlight

_logger = logging.getLogger(__name__)
_PATIENCE_S = 5.0  # a model waits this long for others to be out of use, so that it has their memory
_LOOK_AGAIN_S = 0.005  # most predictions take less
# Where a model has no room, and what to do about it.
_BUDGETS: Mapping[Device, tuple[str, str]] = {
    "cpu": ("", "raise the server's OCTET_MODEL_MEMORY_BYTES"),
    "cuda": (" on a card", "raise the server's OCTET_CARD_MEMORY_BYTES, or give it fewer instances or a larger card"),
}


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
        plane: Plane,
        on_lost: Callable[[Build], None],
        forget: Callable[[Served], None],
        memory: Memory,
    ) -> None:
        """
        Args:
            scheduling: the rules of each model, by its name.
            plane: loads them.
            on_lost: called in a thread with a build whose artifact is damaged or gone.
            forget: sends no more requests to what has to make room for another.
            memory: what all models together may take.
        """
        self._builds, self._artifacts = builds, artifacts
        self._scheduling, self._plane = scheduling, plane
        self._on_lost, self._forget = on_lost, forget
        self._memory = memory
        self._making_room = asyncio.Lock()
        self._receipts: dict[Served, object] = {}
        self._leaving: dict[Served, asyncio.Task[None]] = {}
        self._loading: SingleFlight[Identity, Served] = SingleFlight()
        self._failures = Failures()
        self._metadata: dict[Digest, ModelMetadata] = {}
        self.loaded: dict[Identity, Served] = {}

    async def load(self, build: Build, identity: Identity, beside: Served | None = None) -> Served:
        """What is loaded as `identity`, or is from now on.

        Args:
            beside: what the caller holds meanwhile, and so cannot make room for it.

        Raises:
            OctetError: it cannot be loaded here, now or when it was last tried.
        """
        if served := self.loaded.get(identity):
            return served
        self._failures.check(identity.artifact)
        if beside is not None:
            await self._check_room(identity, beside)
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
        return artifact not in self._failures

    def is_loading(self, model: str, version: int) -> bool:
        return any((identity.model, identity.version) == (model, version) for identity in self._loading)

    def failure(self, artifact: Digest) -> OctetError | None:
        """Why an artifact could not be loaded when it was last tried, or may not be."""
        if (failure := self._failures.of(artifact)) is not None:
            return failure
        try:
            self._artifacts.check_crashes(artifact)
        except OctetError as error:
            return error
        return None

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
        self._failures.forget(artifact)
        self._artifacts.forgive(artifact)

    def describe(self, served: Served, metadata: ModelMetadata) -> None:
        """What is known of a loaded model, from now on."""
        if served.metadata != metadata:
            served.metadata = metadata
            self._plane.describe(served.key, orders.describe(metadata))

    def lost(self, present: Collection[int]) -> list[Served]:
        """Forgets what is loaded no more: all but what has these keys."""
        gone = [served for served in self.in_memory() if served.key not in present]
        for served in gone:
            served.is_lost = True
            self.unload(served)
        return gone

    async def close(self) -> None:
        """Ends what is being loaded; what is loaded stays with the data plane."""
        await self._loading.end()
        for leaving in self._leaving.values():
            leaving.cancel()

    async def _load_now(self, build: Build, identity: Identity) -> Served:
        _logger.info("loading %s version %d: %s", identity.model, identity.version, identity.artifact)
        try:
            weight = await asyncio.to_thread(self._weigh, identity)
            receipt = await self._take_room(identity, weight)
            try:
                served = await self._start(identity)
            except BaseException:
                self._memory.give_back(receipt)
                raise
        except _NoRoom as error:
            raise error.args[0] from None  # nothing is wrong with the artifact
        except (CorruptBlob, NotFound) as error:
            raise await self._lost(build, identity) from error
        except Restarting:  # nor then
            raise
        except Exception as error:  # whatever a library does when it is loaded: this model cannot run, others can
            failure = self._failures.note(identity.artifact, error)
            _logger.exception("artifact %s cannot be served: %s", identity.artifact, failure)
            if failure is error:
                raise
            raise failure from error
        self._artifacts.hold(self._memory.mapped)
        self._failures.forget(identity.artifact)
        self._receipts[served] = receipt
        self.loaded[served.identity] = served
        return served

    async def _start(self, identity: Identity) -> Served:
        """In all its sizes; but for one sample, those that cannot be loaded are left out from now on."""
        await asyncio.to_thread(self._artifacts.check, identity.artifact)
        usable = {each for each in identity.others if await asyncio.to_thread(self._is_good, each)}
        try:
            return await self._ordered(_without(identity, set(identity.others) - usable))
        except Restarting:
            raise
        except NotReady as error:
            if not usable:
                raise
            _logger.error("of %s version %d only one size is served: %s", identity.model, identity.version, error)
            for artifact in usable:
                self._failures.note(artifact, error)
            return await self._ordered(_without(identity, set(identity.others)))

    async def _ordered(self, identity: Identity) -> Served:
        order, signature = await asyncio.to_thread(self._artifacts.order, identity, self._scheduling(identity.model))
        return Served(await self._plane.load(order), identity, signature)

    def _weigh(self, identity: Identity) -> Weight:
        """All its sizes; raises what `Artifacts.weigh` raises for the first."""
        weights = [self._artifacts.weigh(identity.artifact)]
        for artifact in identity.others:
            with suppress(CorruptBlob, NotFound):  # as `_is_good` will find
                weights.append(self._artifacts.weigh(artifact))
        one = together(weights)
        instances = self._scheduling(identity.model).instances_on(one.device)
        return replace(one, own_bytes=one.own_bytes * instances)

    async def _check_room(self, identity: Identity, beside: Served) -> None:
        """Raises `NotReady`: the memory does not hold both, however long one waits."""
        try:
            weight = await asyncio.to_thread(self._weigh, identity)
        except (CorruptBlob, NotFound):  # as `_load_now` will find
            return
        limit_bytes = self._memory.limit_bytes(weight.device)
        receipt = self._receipts.get(beside)
        if not limit_bytes or receipt is None or self._memory.device(receipt) != weight.device:
            return
        both = together([weight, self._memory.weight(receipt)])
        if both.total_bytes > limit_bytes:
            where, hint = _BUDGETS[weight.device]
            raise NotReady(
                f"versions {beside.identity.version} and {identity.version} of model {identity.model!r} together need "
                f"{_mb(both.total_bytes)}{where}; the limit for all models is {_mb(limit_bytes)}",
                hint=hint,
            )

    async def _take_room(self, identity: Identity, weight: Weight) -> object:
        """Takes memory for a model; those that were not used for longest, and are not now, make room for it.

        Raises:
            _NoRoom: it is too large, or what is loaded is in use and stays so.
        """
        limit_bytes = self._memory.limit_bytes(weight.device)
        where, hint = _BUDGETS[weight.device]
        what = f"version {identity.version} of model {identity.model!r} needs {_mb(weight.total_bytes)}{where}"
        if limit_bytes and weight.total_bytes > limit_bytes:
            too_large = NotReady(f"{what}; the limit for all models together is {_mb(limit_bytes)}", hint=hint)
            raise _NoRoom(self._failures.note(identity.artifact, too_large))  # for its state to say
        async with self._making_room:
            until_s = monotonic() + _PATIENCE_S  # now: what waited before this held models that it does no more
            while not self._memory.has_room(weight):
                if monotonic() > until_s:
                    used = _mb(self._memory.used_bytes(weight.device))
                    raise _NoRoom(NotReady(f"{what}, and models in use take {used} of {_mb(limit_bytes)}", hint=hint))
                await self._unload_least_recent(weight.device)
            return self._memory.take(weight)

    async def _unload_least_recent(self, device: Device) -> None:
        """Unloads a model of that device that nobody holds; where there is none, waits a little."""
        await self._plane.gather()
        of_device = [each for each in self.loaded.values() if self._memory.device(self._receipts[each]) == device]
        unused = [served for served in of_device if not served.is_held]
        if not unused:
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        served = min(unused, key=lambda each: each.used_s)
        _logger.info("%s version %d makes room", served.identity.model, served.identity.version)
        self._forget(served)
        self.unload(served)
        await self._leaving[served]

    async def _see_off(self, served: Served) -> None:
        await served.unused()
        if not served.is_lost:  # or its key may be that of another by now
            await self._plane.unload(served.key)
        self._memory.give_back(self._receipts.pop(served))
        if all(served.identity.artifact != each.artifact for each in self.loaded):  # or each push would leave some here
            self._metadata.pop(served.identity.artifact, None)
        del self._leaving[served]
        self._artifacts.hold(self._memory.mapped)

    def _is_good(self, artifact: Digest) -> bool:
        """Whether one size of a model can be loaded; the others can where it cannot."""
        try:
            self._artifacts.check(artifact)
        except (CorruptBlob, NotFound):
            _logger.exception("artifact %s, of one size of a model, is damaged or gone", artifact)
            self._builds.invalidate(artifact)
        except Exception as error:  # as for the model itself
            _logger.exception("artifact %s, of one size of a model, cannot be served", artifact)
            self._failures.note(artifact, error)
        else:
            return True
        return False

    async def _lost(self, build: Build, identity: Identity) -> NotReady:
        _logger.error("artifact %s is damaged or gone, and will be built again", identity.artifact)
        await asyncio.to_thread(self._builds.invalidate, identity.artifact)
        await asyncio.to_thread(self._on_lost, build)
        return NotReady(
            f"the artifact of model {identity.model!r} was damaged in the store",
            hint="it is being rebuilt; try again later",
        )


def _without(identity: Identity, artifacts: Collection[Digest]) -> Identity:
    variants = tuple((batch, artifact) for batch, artifact in identity.variants if artifact not in artifacts)
    return replace(
        identity,
        variants=variants,
        buckets=tuple(artifact for artifact in identity.buckets if artifact not in artifacts),
    )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
