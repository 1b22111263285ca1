"""Which models are loaded here: found when first asked for, kept, and replaced by newer builds of themselves.

A predict request costs one dictionary look-up. The builds table is asked on the first request for a name, and then
for every loaded name about twice a second, by one task for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

from service.core.build import Build
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound, NotReady, OctetError
from service.core.options import batch_of, tune_s_of
from service.workers.inference.explain import why_not_ready
from service.workers.inference.flights import Flights
from service.workers.inference.observer import Identity, Observer, Unobserved
from service.workers.inference.ports import Artifacts, Builds, Models
from service.workers.inference.runner import Array, Runner
from service.workers.inference.served import Served
from service.workers.inference.variants import Variants

_logger = logging.getLogger(__name__)
_RETRY_LOAD_S = 10.0  # an artifact that could not be loaded is not tried again for this long

_Kind = tuple[int, str, str]
Name = tuple[str, int | None]  # a model and one of its versions, or None for the newest that is ready


class Registry:
    """The loaded models. For one event loop; whatever blocks runs in a thread."""

    def __init__(
        self,
        builds: Builds,
        models: Models,
        artifacts: Artifacts,
        *,
        targets: Sequence[str],
        queue_size: int = 64,
        observer: Observer | None = None,
        on_lost: Callable[[Build], None] = lambda build: None,
        refresh_s: float = 0.5,
    ) -> None:
        """Loads nothing yet.

        Args:
            builds: where succeeded builds are found, and lost ones reported.
            models: tells an unknown model from one that has no build.
            artifacts: loads what the builds made.
            targets: canonical names of the targets that run here, the best first.
            queue_size: how many requests may wait for a model.
            observer: told of every model and request.
            on_lost: called in a thread with a build whose artifact is damaged or gone, so that it is built again.
            refresh_s: how often newer builds of loaded models are looked for.
        """
        self._builds, self._models, self._artifacts = builds, models, artifacts
        self._targets = tuple(targets)
        self._queue_size = queue_size
        self._observer: Observer = observer or Unobserved()
        self._on_lost = on_lost
        self._refresh_s = refresh_s
        self._current: dict[Name, Served] = {}
        self._loaded: dict[Identity, Served] = {}
        self._refreshing: Flights[Name, None] = Flights()
        self._loading: Flights[Identity, Served] = Flights()
        self._failed: dict[Digest, tuple[float, OctetError]] = {}
        self._refresher: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def is_ready(self) -> bool:
        """Whether requests are welcome: until `close`."""
        return not self._closed

    async def acquire(self, model: str, version: int | None = None) -> Served:
        """The loaded model, held: the caller owes it a `release`.

        Args:
            model: its name.
            version: None for the newest that is ready.

        Raises:
            NotFound: there is no such model or version.
            NotReady: no verified artifact of it runs here; the hint says why.
        """
        name = model, version
        while (served := self._current.get(name)) is None:
            await self._refresh(name)
        served.hold()
        return served

    async def infer(self, model: str, version: int | None, inputs: Sequence[Array]) -> Sequence[Array]:
        """The model's outputs for `inputs`, both in the signature's order.

        Raises:
            NotFound, NotReady: as `acquire`.
            QueueFull: too many requests wait for the model.
            InvalidTensor: an input does not fit the signature.
        """
        served = await self.acquire(model, version)
        try:
            return await served.infer(inputs)
        finally:
            served.release()

    async def versions(self, model: str) -> list[int]:
        """The versions of a model that have a build for this host, in ascending order. Raises `NotFound`."""
        return await asyncio.to_thread(self._versions, model)

    async def close(self) -> None:
        """Takes no new requests, and waits for those that were taken."""
        self._closed = True
        if self._refresher:
            self._refresher.cancel()
        await self._refreshing.end()
        await self._loading.end()
        retired = list(self._loaded.values())
        self._current.clear()
        self._loaded.clear()
        for served in retired:
            served.retire()
        for served in retired:
            await served.closed()

    async def _refresh(self, name: Name) -> None:
        """Makes the best artifact there is for `name` the current one."""
        await self._refreshing.join(name, lambda: self._resolve(name))

    async def _resolve(self, name: Name) -> None:
        if self._closed:
            raise NotReady("the server is shutting down")
        candidates = await asyncio.to_thread(self._candidates, *name)
        failure: OctetError | None = None
        for build, identity in candidates:
            try:
                served = self._loaded.get(identity) or await self._load(build, identity)
            except OctetError as error:
                failure = error
                continue
            self._switch(name, served)
            return
        if failure is None:
            raise await asyncio.to_thread(why_not_ready, self._builds, self._models, *name, self._targets)
        raise NotReady(f"model {name[0]!r} cannot be loaded here: {failure.message}", hint=failure.hint) from failure

    def _candidates(self, model: str, version: int | None) -> list[tuple[Build, Identity]]:
        """Builds that may answer: the newest version first, of it the best target, of that the newest build.

        One that was tuned comes before the build that it was tuned from, whichever was asked for last.
        """
        serving = [
            build
            for build in self._builds.serving(model, version, self._targets)
            if build.artifact and build.target in self._targets
        ]
        variants = self._variants(serving)
        found = [
            (
                build,
                Identity(
                    model, build.version, build.target, build.numerics, build.artifact, variants.get(_kind(build), ())
                ),
            )
            for build in serving
            if build.artifact and batch_of(build.options) == 1
        ]
        places = {_kind(build): -place for place, (build, _) in reversed(list(enumerate(found)))}
        plain_at = {_kind(build): build.created_at for build, _ in reversed(found) if not _is_tuned(build)}

        def order(candidate: tuple[Build, Identity]) -> tuple[int, int, int, bool]:
            build, kind = candidate[0], _kind(candidate[0])
            is_better = _is_tuned(build) and build.created_at >= plain_at.get(kind, build.created_at)
            return -build.version, self._targets.index(build.target), -places[kind], not is_better

        return sorted(found, key=order)

    def _variants(self, serving: Sequence[Build]) -> dict[_Kind, tuple[tuple[int, Digest], ...]]:
        """The batch variants of each kind: of each size the newest that can be loaded."""
        found: dict[_Kind, dict[int, Digest]] = {}
        for build in serving:
            batch = batch_of(build.options)
            if batch > 1 and build.artifact and build.artifact not in self._failed:
                found.setdefault(_kind(build), {}).setdefault(batch, build.artifact)
        return {kind: tuple(sorted(sizes.items())) for kind, sizes in found.items()}

    async def _load(self, build: Build, identity: Identity) -> Served:
        retry_at, failure = self._failed.get(identity.artifact, (0.0, None))
        if failure and monotonic() < retry_at:
            raise failure
        return await self._loading.join(identity, lambda: self._load_now(build, identity))

    async def _load_now(self, build: Build, identity: Identity) -> Served:
        _logger.info("loading %s version %d: %s", identity.model, identity.version, identity.artifact)
        try:
            runner = await asyncio.to_thread(self._artifacts.load, identity.artifact)
            if identity.variants:
                runner, identity = await asyncio.to_thread(self._with_variants, runner, identity)
            served = await self._start(identity, runner)
        except (CorruptBlob, NotFound) as error:
            raise await self._lost(build, identity) from error
        except Exception as error:  # whatever a library does when it is loaded: this model cannot run, others can
            _logger.exception("artifact %s cannot be served", identity.artifact)
            failure = error if isinstance(error, OctetError) else NotReady(f"{type(error).__name__}: {error}")
            self._failed[identity.artifact] = monotonic() + _RETRY_LOAD_S, failure
            if failure is error:
                raise
            raise failure from error
        self._failed.pop(identity.artifact, None)
        self._loaded[identity] = served
        return served

    def _with_variants(self, one: Runner, identity: Identity) -> tuple[Runner, Identity]:
        """`one` and its batch variants; those that cannot be loaded are left out from now on."""
        runners: dict[int, Runner] = {}
        for batch, artifact in identity.variants:
            try:
                runners[batch] = self._artifacts.load(artifact)
            except (CorruptBlob, NotFound):
                _logger.exception("artifact %s, of batch %d, is damaged or gone", artifact, batch)
                self._builds.invalidate(artifact)
            except Exception as error:  # as for the model itself: the other sizes can run
                _logger.exception("artifact %s, of batch %d, cannot be served", artifact, batch)
                failure = error if isinstance(error, OctetError) else NotReady(f"{type(error).__name__}: {error}")
                self._failed[artifact] = monotonic() + _RETRY_LOAD_S, failure
        loaded = tuple((batch, artifact) for batch, artifact in identity.variants if batch in runners)
        return Variants(one, runners), replace(identity, variants=loaded)

    async def _start(self, identity: Identity, runner: Runner) -> Served:
        served = Served(identity, runner, queue_size=self._queue_size, observer=self._observer)
        try:
            await served.warm()
        except BaseException:
            served.retire()
            raise
        return served

    async def _lost(self, build: Build, identity: Identity) -> NotReady:
        _logger.error("artifact %s is damaged or gone, and will be built again", identity.artifact)
        await asyncio.to_thread(self._builds.invalidate, identity.artifact)
        await asyncio.to_thread(self._on_lost, build)
        return NotReady(
            f"the artifact of model {identity.model!r} was damaged in the store",
            hint="it is being built again; try again later",
        )

    def _switch(self, name: Name, served: Served) -> None:
        old = self._current.get(name)
        self._current[name] = served
        if old and old is not served:
            self._retire_if_replaced(old)
        if self._refresher is None:
            self._refresher = asyncio.create_task(self._keep_fresh())

    def _retire_if_replaced(self, served: Served) -> None:
        if served not in self._current.values():
            _logger.info("unloading %s version %d", served.identity.model, served.identity.version)
            del self._loaded[served.identity]
            served.retire()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            for name in list(self._current):
                await self._check(name)

    async def _check(self, name: Name) -> None:
        """Loads what has replaced `name`; unloads it where nothing stands for it any more."""
        try:
            await self._refresh(name)
        except (NotFound, NotReady) as error:
            _logger.warning("model %s is no longer served: %s", name[0], error)
            self._retire_if_replaced(self._current.pop(name))
        except Exception:  # the table could not be read: what is loaded goes on answering
            _logger.exception("could not look for a newer build of %s", name[0])

    def _versions(self, model: str) -> list[int]:
        self._models.get(model)
        return sorted({build.version for build in self._builds.serving(model, None, self._targets)})


def _kind(build: Build) -> _Kind:
    """What the batch variants of a model have in common."""
    return build.version, build.target, build.numerics


def _is_tuned(build: Build) -> bool:
    return tune_s_of(build.options) is not None
