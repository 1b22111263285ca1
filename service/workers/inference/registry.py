"""Which models are loaded here: found when first asked for, kept, and replaced by newer builds of themselves.

A predict request costs one dictionary look-up. The builds table is asked on the first request for a name, and then
for every loaded name about twice a second, by one task for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from service.core.build import Build
from service.core.errors import NotFound, NotReady, OctetError
from service.workers.inference.candidates import Candidate, candidates
from service.workers.inference.explain import why_not_ready
from service.workers.inference.flights import Flights
from service.workers.inference.inventory import Indexed, Inventory, ModelState
from service.workers.inference.loader import Loader
from service.workers.inference.observer import Identity, Observer, Unobserved
from service.workers.inference.ports import Artifacts, Builds, Models
from service.workers.inference.runner import Array, Runner
from service.workers.inference.served import Served

_logger = logging.getLogger(__name__)

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
        self._builds, self._models = builds, models
        self._targets = tuple(targets)
        self._queue_size = queue_size
        self._observer: Observer = observer or Unobserved()
        self._refresh_s = refresh_s
        self._loader = Loader(builds, artifacts, self._start, on_lost)
        self._inventory = Inventory(builds, models, self._targets, self._loader)
        self._current: dict[Name, Served] = {}
        self._unloaded: set[Name] = set()
        self._refreshing: Flights[Name, None] = Flights()
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

    async def load(self, model: str, version: int | None = None) -> None:
        """Makes a model ready: its newest version, or the one named. What could not be loaded is tried again at once.

        Raises:
            NotFound: there is no such model or version.
            NotReady: no verified artifact of it runs here; the hint says why.
        """
        self._unloaded -= {(model, None), (model, version)}
        for _, identity in await asyncio.to_thread(self._candidates, model, version):
            self._loader.forgive(identity.artifact)
        await self._refresh((model, version))

    async def unload(self, model: str, version: int | None = None) -> None:
        """Takes a model, or one version of it, out of memory; requests for it are refused until `load`.

        Those that were taken are answered. It is for this process only, and until it ends.

        Raises:
            NotFound: there is no such model or version.
        """
        await asyncio.to_thread(self._check_known, model, version)
        self._unloaded.add((model, version))
        for name, served in list(self._current.items()):
            if self._is_unloaded(served.identity.model, served.identity.version):
                del self._current[name]
        for identity, served in list(self._loader.loaded.items()):
            if self._is_unloaded(identity.model, identity.version):
                self._loader.unload(served)

    async def index(self) -> list[Indexed]:
        """Every version of every model, and whether it is loaded here; by name, the oldest version first."""
        return await asyncio.to_thread(self._index)

    async def close(self) -> None:
        """Takes no new requests, and waits for those that were taken."""
        self._closed = True
        if self._refresher:
            self._refresher.cancel()
        await self._refreshing.end()
        self._current.clear()
        await self._loader.close()

    async def _refresh(self, name: Name) -> None:
        """Makes the best artifact there is for `name` the current one."""
        await self._refreshing.join(name, lambda: self._resolve(name))

    async def _resolve(self, name: Name) -> None:
        if self._closed:
            raise NotReady("the server is shutting down")
        failure: OctetError | None = None
        for build, identity in await asyncio.to_thread(self._candidates, *name):
            try:
                served = await self._load(build, identity)
            except OctetError as error:
                failure = error
                continue
            self._switch(name, served)
            return
        if failure is None:
            raise await asyncio.to_thread(why_not_ready, self._builds, self._models, *name, self._targets)
        raise NotReady(f"model {name[0]!r} cannot be loaded here: {failure.message}", hint=failure.hint) from failure

    async def _load(self, build: Build, identity: Identity) -> Served:
        while True:
            if self._is_unloaded(identity.model, identity.version):
                raise NotReady(
                    f"version {identity.version} of model {identity.model!r} was unloaded",
                    hint=f"POST /v2/repository/models/{identity.model}/load loads it",
                )
            served = await self._loader.load(build, identity)
            if self._is_unloaded(identity.model, identity.version):  # while it was loaded
                self._loader.unload(served)
            elif self._loader.holds(served):  # and nobody was faster to unload it again
                return served

    def _candidates(self, model: str, version: int | None) -> list[Candidate]:
        return candidates(self._builds, self._targets, model, version, self._loader.is_usable)

    def _is_unloaded(self, model: str, version: int) -> bool:
        return not self._unloaded.isdisjoint({(model, None), (model, version)})

    def _start(self, identity: Identity, runner: Runner) -> Served:
        return Served(identity, runner, queue_size=self._queue_size, observer=self._observer)

    def _switch(self, name: Name, served: Served) -> None:
        old = self._current.get(name)
        self._current[name] = served
        if old and old is not served:
            self._retire_if_replaced(old)
        if self._refresher is None:
            self._refresher = asyncio.create_task(self._keep_fresh())

    def _retire_if_replaced(self, served: Served) -> None:
        if served not in self._current.values():
            self._loader.unload(served)

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

    def _check_known(self, model: str, version: int | None) -> None:
        self._models.get(model)
        if version is not None:
            self._models.version(model, version)

    def _index(self) -> list[Indexed]:
        return [
            Indexed(each.name, each.number, ModelState.UNAVAILABLE, "it was unloaded")
            if self._is_unloaded(each.name, each.number)
            else self._inventory.look(each.name, each.number)
            for each in self._models.all_versions()
        ]
