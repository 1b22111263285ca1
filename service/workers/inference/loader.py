"""Loads the artifacts of builds into the data plane. Records which artifacts cannot be loaded, and does not try to load
these again for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from service.core.builds.build import Build
from service.core.cluster.queueing import Scheduling
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound, NotReady, OctetError, Restarting
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.target import Device
from service.workers.data_plane import orders
from service.workers.inference.failures import Failures
from service.workers.inference.identity import Identity
from service.workers.inference.memory import Memory, Weight, together
from service.workers.inference.ports import Artifacts, Builds, Plane
from service.workers.inference.served import Served
from service.workers.inference.single_flight import SingleFlight

_logger = logging.getLogger(__name__)
_PATIENCE_S = 5.0  # how long a load waits for other models to become unused, so that their memory becomes free
_LOOK_AGAIN_S = 0.005  # the interval of these checks; most predictions take less
# For each device: the name of its memory in messages, and what the user can do if there is too little.
_BUDGETS: Mapping[Device, tuple[str, str]] = {
    "cpu": ("", "raise the server's OCTET_MODEL_MEMORY_BYTES"),
    "cuda": (" on a GPU", "raise the server's OCTET_CARD_MEMORY_BYTES, or give it fewer instances or a larger GPU"),
}


class _NoRoom(Exception):
    """A model does not fit into memory; the argument is the error to report."""


class Loader:
    """The models in memory, by identity. For one event loop; blocking work runs in a thread.

    Attributes:
        loaded: the models that are ready.
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
            scheduling: returns the rules of a model, by its name.
            plane: loads the models.
            on_lost: called in a thread with a build whose artifact is damaged or gone.
            forget: stops sending requests to a model that is to be unloaded to make room for another.
            memory: the memory budget of all models together.
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
        """Returns the model that is loaded as `identity`, loading it if necessary.

        Args:
            beside: a model that the caller keeps loaded during the call, so that it cannot be unloaded to make room for
                the new model.

        Raises:
            OctetError: the model cannot be loaded here, or could not at the last attempt.
        """
        if served := self.loaded.get(identity):
            return served
        self._failures.check(identity.artifact)
        if beside is not None:
            await self._check_room(identity, beside)
        return await self._loading.join(identity, lambda: self._load_now(build, identity))

    def unload(self, served: Served) -> None:
        """Unloads the model as soon as no request uses it."""
        if self.holds(served):
            _logger.info("unloading %s version %d", served.identity.model, served.identity.version)
            del self.loaded[served.identity]
            served.retire()
            self._leaving[served] = asyncio.create_task(self._finish_unload(served))

    def holds(self, served: Served) -> bool:
        """Returns true if the model is still loaded."""
        return self.loaded.get(served.identity) is served

    def in_memory(self) -> list[Served]:
        """Returns the models that are ready, and those whose last requests are being answered. May be called from any
        thread.
        """
        return [*list(self.loaded.values()), *list(self._leaving)]

    def is_usable(self, artifact: Digest) -> bool:
        """Returns true if no failure is recorded for the artifact."""
        return artifact not in self._failures

    def is_loading(self, model: str, version: int) -> bool:
        return any((identity.model, identity.version) == (model, version) for identity in self._loading)

    def failure(self, artifact: Digest) -> OctetError | None:
        """Returns why an artifact may not be loaded, or could not be loaded at the last attempt. None if neither
        applies.
        """
        if (failure := self._failures.of(artifact)) is not None:
            return failure
        try:
            self._artifacts.check_crashes(artifact)
        except OctetError as error:
            return error
        return None

    def file_metadata(self, artifact: Digest) -> ModelMetadata:
        """Returns the metadata in the model file of a loaded artifact, or no metadata if the file is damaged. Reads a
        file.
        """
        if artifact not in self._metadata:
            try:
                self._metadata[artifact] = self._artifacts.file_metadata(artifact)
            except OctetError as error:
                _logger.warning("cannot read the metadata of artifact %s: %s", artifact, error)
                self._metadata[artifact] = NOTHING
        return self._metadata[artifact]

    def forgive(self, artifact: Digest) -> None:
        """Allows an immediate attempt to load an artifact, even if it crashed the server or failed to load before.
        Writes a file, so call it in a thread.
        """
        self._failures.forget(artifact)
        self._artifacts.forgive(artifact)

    def tokenizer(self, metadata: ModelMetadata) -> Path | None:
        """Returns the file of the tokenizer, or None without a tokenizer. May fetch a file. Returns None also if the
        file is damaged or lost, because the model can still be called with tensors.
        """
        if metadata.text.tokenizer is None:
            return None
        try:
            return self._artifacts.tokenizer(metadata.text.tokenizer)
        except OctetError as error:
            _logger.error("cannot read a tokenizer: %s", error)
            return None

    def describe(self, served: Served, metadata: ModelMetadata, tokenizer: Path | None = None) -> None:
        """Sets the metadata of a loaded model.

        Args:
            tokenizer: the file that the method `tokenizer` returned for `metadata`.
        """
        if (served.metadata, served.tokenizer) != (metadata, tokenizer):
            served.metadata, served.tokenizer = metadata, tokenizer
            described = orders.describe(metadata, tokenizer, is_partial=served.identity.is_partial)
            self._plane.describe(served.key, described)
            self._hold_files()

    def _hold_files(self) -> None:
        """Keeps the files that loaded models use from being evicted from this machine."""
        tokenizers = {served.metadata.text.tokenizer for served in self.in_memory()}
        self._artifacts.hold({*self._memory.mapped, *filter(None, tokenizers)})

    def lost(self, present: Collection[int]) -> list[Served]:
        """Removes the models that are no longer loaded, and returns them. `present` contains the keys of those that
        still are.
        """
        gone = [served for served in self.in_memory() if served.key not in present]
        for served in gone:
            served.is_lost = True
            self.unload(served)
        return gone

    async def close(self) -> None:
        """Cancels the loads in progress. Loaded models stay in the data plane."""
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
            raise error.args[0] from None  # missing memory is not the artifact's fault
        except (CorruptBlob, NotFound) as error:
            raise await self._lost(build, identity) from error
        except Restarting:  # a restart is not the artifact's fault either
            raise
        # A library may raise any exception when it is loaded. This model cannot run then, but others can.
        except Exception as error:
            failure = self._failures.note(identity.artifact, error)
            _logger.exception("artifact %s cannot be served: %s", identity.artifact, failure)
            if failure is error:
                raise
            raise failure from error
        self._failures.forget(identity.artifact)
        self._receipts[served] = receipt
        self.loaded[served.identity] = served
        self._hold_files()
        return served

    async def _start(self, identity: Identity) -> Served:
        """Loads a model in all its sizes, which are batch sizes and buckets. Sizes that cannot be loaded are left out.
        If the first one (`Identity.artifact`) cannot be loaded, raises its error.
        """
        await asyncio.to_thread(self._artifacts.check, identity.artifact)
        usable = {each for each in identity.others if await asyncio.to_thread(self._is_good, each)}
        try:
            return await self._send_load(_without(identity, set(identity.others) - usable))
        except Restarting:
            raise
        except NotReady as error:
            if not usable:
                raise
            _logger.error("%s version %d is served in one size only: %s", identity.model, identity.version, error)
            for artifact in usable:
                self._failures.note(artifact, error)
            return await self._send_load(_without(identity, set(identity.others)))

    async def _send_load(self, identity: Identity) -> Served:
        order, signature = await asyncio.to_thread(self._artifacts.order, identity, self._scheduling(identity.model))
        return Served(await self._plane.load(order), identity, signature)

    def _weigh(self, identity: Identity) -> Weight:
        """Returns the memory needed by all sizes. Raises the errors of `Artifacts.weigh` for the first size."""
        weights = [self._artifacts.weigh(identity.artifact)]
        for artifact in identity.others:
            with suppress(CorruptBlob, NotFound):  # `_is_good` will report it
                weights.append(self._artifacts.weigh(artifact))
        one = together(weights)
        instances = self._scheduling(identity.model).instances_on(one.device)
        return replace(one, private_bytes=one.private_bytes * instances)

    async def _check_room(self, identity: Identity, beside: Served) -> None:
        """Raises `NotReady` if the memory limit is too small for both models, even if all others are unloaded."""
        try:
            weight = await asyncio.to_thread(self._weigh, identity)
        except (CorruptBlob, NotFound):  # `_load_now` will report it
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
        """Takes memory for a model. Unloads the least recently used models that are not in use, to make room for it.

        Raises:
            _NoRoom: the model is too large, or too many loaded models stay in use.
        """
        limit_bytes = self._memory.limit_bytes(weight.device)
        where, hint = _BUDGETS[weight.device]
        what = f"version {identity.version} of model {identity.model!r} needs {_mb(weight.total_bytes)}{where}"
        if limit_bytes and weight.total_bytes > limit_bytes:
            too_large = NotReady(f"{what}; the limit for all models together is {_mb(limit_bytes)}", hint=hint)
            # `note` makes the model's state show the error.
            raise _NoRoom(self._failures.note(identity.artifact, too_large))
        async with self._making_room:
            # The time starts only here, with the lock acquired: a caller that held the lock before may have waited
            # long.
            until_s = monotonic() + _PATIENCE_S
            while not self._memory.has_room(weight):
                if monotonic() > until_s:
                    used = _mb(self._memory.used_bytes(weight.device))
                    raise _NoRoom(NotReady(f"{what}, but models in use take {used} of {_mb(limit_bytes)}", hint=hint))
                await self._unload_least_recent(weight.device)
            return self._memory.take(weight)

    async def _unload_least_recent(self, device: Device) -> None:
        """Unloads the least recently used model of the device that is not in use. If all are in use, waits a little."""
        await self._plane.gather()
        of_device = [each for each in self.loaded.values() if self._memory.device(self._receipts[each]) == device]
        unused = [served for served in of_device if not served.is_held]
        if not unused:
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        served = min(unused, key=lambda each: each.used_s)
        _logger.info("unloading %s version %d to make room", served.identity.model, served.identity.version)
        self._forget(served)
        self.unload(served)
        await self._leaving[served]

    async def _finish_unload(self, served: Served) -> None:
        await served.unused()
        if not served.is_lost:  # if the data plane was lost, the key may belong to another model
            await self._plane.unload(served.key)
        self._memory.give_back(self._receipts.pop(served))
        # Without this, `_metadata` would keep an entry for each artifact that was ever loaded.
        if all(served.identity.artifact != each.artifact for each in self.loaded):
            self._metadata.pop(served.identity.artifact, None)
        del self._leaving[served]
        self._hold_files()

    def _is_good(self, artifact: Digest) -> bool:
        """Returns true if this size of a model can be loaded. If it cannot, the other sizes may still be loaded."""
        try:
            self._artifacts.check(artifact)
        except (CorruptBlob, NotFound):
            _logger.exception("artifact %s, of one size of a model, is damaged or gone", artifact)
            self._builds.invalidate(artifact)
        except Exception as error:  # a library may raise any exception when it is loaded
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
