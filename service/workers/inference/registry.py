"""The models that this server serves: each is loaded at the first request for it, and replaced when a newer build of
the model exists.

The data plane has the models in memory, and chooses the model for each request by the routes that it received last. The
registry reads the tables when the data plane first requests a name, and again when the model has changed. One task does
this for all names. A new model is loaded and warmed up before its name is switched to the new model. The old model is
unloaded when its last request is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context

from service.core.builds.build import Build
from service.core.cluster.queueing import Scheduling
from service.core.digest import Digest
from service.core.errors import NotReady, OctetError
from service.core.system.outage import log_trouble
from service.workers.data_plane import orders
from service.workers.data_plane.messages import Report
from service.workers.inference.finder import CannotLoad, Finder, Unwanted, is_answer
from service.workers.inference.following import Following
from service.workers.inference.inventory import Indexed, Inventory
from service.workers.inference.loader import Loader
from service.workers.inference.memory import Memory
from service.workers.inference.name_warnings import NameWarnings, display_name
from service.workers.inference.ports import Aliases, Artifacts, Builds, Changes, Models, Plane
from service.workers.inference.routes import Name, Reference, Route, Routes
from service.workers.inference.served import Served
from service.workers.inference.single_flight import SingleFlight
from service.workers.inference.tables import Tables

_logger = logging.getLogger(__name__)


class Registry:
    """The loaded models. For one event loop; blocking work runs in a thread.

    Attributes:
        on_names: called with the served names (models, and versions as requests name them) whenever they change.
    """

    def __init__(
        self,
        builds: Builds,
        models: Models,
        artifacts: Artifacts,
        plane: Plane,
        *,
        targets: Sequence[str],
        aliases: Aliases | None = None,
        changes: Changes | None = None,
        scheduling: Callable[[str], Scheduling] = lambda model: Scheduling(),
        on_lost: Callable[[Build], None] = lambda build: None,
        refresh_s: float = 0.5,
        memory_bytes: int = 0,
        card_memory_bytes: int = 0,
    ) -> None:
        """Loads nothing yet.

        Args:
            builds: finds succeeded builds, and marks lost ones.
            models: distinguishes an unknown model from one without a build.
            artifacts: the artifacts of the builds.
            plane: loads the artifacts, and receives the routes.
            targets: the canonical names of the targets that run here, best first.
            aliases: resolves aliases of versions; None if aliases are not used.
            changes: reports the models whose rows have changed; None if changes are not reported.
            scheduling: returns the rules of a model, by its name.
            on_lost: called in a thread with a build whose artifact is damaged or gone, so that it is built again.
            refresh_s: the interval at which changes are read.
            memory_bytes: the memory limit of all models on the CPU together; 0 means unlimited.
            card_memory_bytes: the memory limit of all models on GPUs together; 0 means unlimited.
        """
        self._tables = Tables(builds, models, aliases, tuple(targets))
        self._plane = plane
        self._refresh_s = refresh_s
        self._memory = Memory(memory_bytes, card_memory_bytes)
        self._loader = Loader(builds, artifacts, scheduling, plane, on_lost, self._forget, self._memory)
        self._finder = Finder(self._tables, self._loader)
        self._inventory = Inventory(builds, models, self._tables.targets, self._loader, self._finder.is_unloaded)
        self._current = Routes(self._send_routes)
        self._warnings, self._following = NameWarnings(), Following(changes)
        self._refreshing: SingleFlight[Name, None] = SingleFlight()
        self._refresher: asyncio.Task[None] | None = None
        self._closed = self._preloading = False
        self._starting: list[str] = []
        self.on_names: Callable[[Collection[tuple[str, str]]], None] = lambda names: None

    @property
    def unready(self) -> str:
        """Returns why requests are refused at startup or shutdown, or an empty string if they are accepted."""
        if self._closed:
            return "the server is shutting down"
        return self._starting[0] if self._starting else "models are being loaded" if self._preloading else ""

    @property
    def is_ready(self) -> bool:
        """Returns true if requests are accepted, which is the case from the end of preloading until `close`."""
        return not self.unready

    @property
    def targets(self) -> Sequence[str]:
        """The canonical names of the targets that run here, best first."""
        return self._tables.targets

    @property
    def memory_bytes(self) -> int:
        """The memory that all loaded models on the CPU take together. May be called from any thread."""
        return self._memory.used_bytes("cpu")

    def in_memory(self) -> list[Served]:
        """Returns the loaded models, and those that are being unloaded. May be called from any thread."""
        return self._loader.in_memory()

    def apply_report(self, report: Report) -> None:
        """Stores the figures in a report of the data plane about the use of its models."""
        uses = {each["key"]: each for each in report["models"]}
        for served in self._loader.in_memory():
            if (use := uses.get(served.key)) is not None:
                served.update_use(use["admitted"], use["queued"], use["used_s"])

    async def found(self, present: Collection[int], routes: Mapping[Name, orders.Named]) -> None:
        """Handles a connection to a new or restarted data plane: loads the models that it lacks.

        Args:
            present: the keys of the loaded models. Models that no route uses are unloaded.
            routes: the routes that an earlier control plane set. Each applies until its name is resolved.
        """
        self._current.keep_earlier(present, routes)
        lost = self._loader.lost(present)
        wanted = [name for name, route in self._current.items() if any(served in lost for served in route)]
        for name in wanted:
            self._current.drop(name)
        for name in dict.fromkeys([*wanted, *routes]):
            await self._follow(name)
        self._send_routes()
        for key in self._plane.leftovers():
            await self._plane.unload(key)

    async def _follow(self, name: Name) -> None:
        """Resolves a name that an earlier control plane served, as soon as the tables can be read."""
        while not self._closed:
            try:
                await self._refresh(name)
            except OctetError as error:
                if not is_answer(error):
                    log_trouble(_logger, error, "cannot resolve %s", display_name(name))
                    await asyncio.sleep(self._refresh_s)
                    continue
                _logger.error("%s is not served any more: %s", display_name(name), error)
            self._current.earlier.pop(name, None)
            return

    async def resolve(self, model: str, version: Reference = None) -> None:
        """Loads the model that serves a name, and sends its route to the data plane.

        Args:
            model: the model's name.
            version: a number or an alias. None means the version `stable`, or the newest that is ready if `stable` is
                not set.

        Raises:
            NotFound: the model, version or alias does not exist.
            NotReady: no verified artifact of the model runs here; the hint explains why.
        """
        if not self.answers(model, version):
            await self._refresh((model, version))

    def answers(self, model: str, version: Reference = None) -> bool:
        """Returns true if the model that serves a name is in memory."""
        return (model, version) in self._current

    async def versions(self, model: str, reference: Reference = None) -> list[int]:
        """Returns the versions of a model that have a build for this host, in ascending order.

        Args:
            reference: limits the result to the versions that this reference names. None means all versions.

        Raises:
            NotFound: the model or alias does not exist.
        """
        return await asyncio.to_thread(self._tables.versions, model, reference)

    async def load(self, model: str, version: int | None = None) -> None:
        """Loads the newest version of a model, or the given one. Artifacts that could not be loaded before are tried
        again at once.

        Raises:
            NotFound: the model or version does not exist.
            NotReady: no verified artifact of the model runs here; the hint explains why.
        """
        await self._finder.allow(model, version)
        await self._refresh((model, version))

    def preload(self, names: Sequence[Name] | None) -> Coroutine[None, None, None]:
        """Loads models before requests are accepted. Requests are refused from this call until the returned coroutine
        has ended.

        A model that cannot be loaded is logged, and does not prevent the others from being served.

        Args:
            names: None means every model that has a build for this host.
        """
        self._preloading = names is None or bool(names)
        return self._preload(names)

    @contextmanager
    def starting(self, reason: str) -> Iterator[None]:
        """While the block runs, `unready` returns this reason. Requests that arrive anyway are answered."""
        self._starting.append(reason)
        try:
            yield
        finally:
            self._starting.remove(reason)

    @asynccontextmanager
    async def prepared(self, model: str, version: int) -> AsyncIterator[None]:
        """Loads a version, and keeps it loaded until the block ends, so that the block can switch requests to it at
        once.

        Raises:
            NotFound, NotReady: as for `load`.
        """
        await self._finder.allow(model, version)
        try:
            served = await self._finder.find(model, version)
        except CannotLoad as failure:
            raise failure.error from failure.__cause__
        try:
            with served.hold():
                yield
        finally:
            self._retire_if_replaced([served])

    async def unload(self, model: str, version: int | None = None) -> None:
        """Unloads a model, or one version of it, and refuses requests for it until `load`.

        Requests that were already accepted are answered. The unload applies only to this process, and only until it
        ends.

        Raises:
            NotFound: the model or version does not exist.
        """
        await self._finder.forbid(model, version)
        for name, route in list(self._current.items()):
            if any(self.is_unloaded(each.identity.model, each.identity.version) for each in route):
                del self._current[name]
        for identity, served in list(self._loader.loaded.items()):
            if self.is_unloaded(identity.model, identity.version):
                self._loader.unload(served)

    async def refresh(self, model: str) -> None:
        """Resolves all requested names of a model again, now."""
        self._following.mark_stale(name for name in self._refreshing if name[0] == model)
        for name in [name for name in self._current if name[0] == model]:
            await self._check(name)

    async def deleted(self, model: str, versions: Collection[int], *, entirely: bool) -> None:
        """Forgets versions that were deleted from the tables. Requests in progress are still answered.

        Args:
            entirely: true if these were all versions of the model.
        """
        self._finder.forget(model, versions, entirely=entirely)
        await self.refresh(model)
        for identity, served in list(self._loader.loaded.items()):
            if identity.model == model and identity.version in versions and not self._current.names_of(served):
                self._loader.unload(served)

    def failure(self, artifact: Digest) -> OctetError | None:
        """Returns why an artifact could not be loaded here at the last attempt. May be called from any thread."""
        return self._loader.failure(artifact)

    async def index(self) -> list[Indexed]:
        """Returns every version of every model, and whether it is loaded here, sorted by name, oldest version first."""
        return await asyncio.to_thread(self._inventory.index)

    async def close(self) -> None:
        """Stops following the tables. The loaded models still answer requests."""
        self._closed = True
        if self._refresher:
            self._refresher.cancel()
        await self._refreshing.end()
        await self._loader.close()

    async def _preload(self, names: Sequence[Name] | None) -> None:
        try:
            for name in await asyncio.to_thread(self._tables.built) if names is None else names:
                try:
                    await self._refresh(name)
                except OctetError as error:
                    _logger.error("%s cannot be preloaded: %s", display_name(name), error)
        finally:
            self._preloading = False

    async def _refresh(self, name: Name) -> None:
        """Resolves `name` to the best artifact that exists, and loads it if necessary."""
        await self._look_for(name)
        while name not in self._current:  # an attempt that this call joined may have dropped the name again
            await self._look_for(name)

    async def _look_for(self, name: Name) -> None:
        """Resolves the name once. The name is not in `_current` afterwards if its model was unloaded in the meantime to
        make room for another.
        """
        await self._refreshing.join(name, lambda: self._resolve(name))

    async def _resolve(self, name: Name) -> None:
        if self._closed:
            raise NotReady("the server is shutting down")
        model, was_current = name[0], name in self._current
        self._following.mark_unresolved(name)  # stays unresolved until the best candidate in the tables serves the name
        wanted, versions = await asyncio.to_thread(self._tables.read, *name)
        try:
            main = await self._finder.find(model, wanted.version, lambda: not was_current or name in self._current)
        except Unwanted:
            return
        except CannotLoad as failure:
            if name not in self._current:
                raise failure.error from failure.__cause__
            self._warnings.report(name, f"the loaded version stays in use: {failure.error}")
            return
        with main.hold():  # keeps this model loaded while the canary is being loaded
            canary, warning = await self._finder.find_canary(model, wanted.canary, main)
        self._warnings.report(name, warning)
        route = Route(main, canary, wanted.percent if canary else 0, versions)
        if all(map(self._loader.holds, route)) and not self._following.is_stale(name):
            self._switch(name, route)
            tried = {(model, wanted.version), (model, wanted.canary)}
            if (canary or wanted.canary is None) and self._finder.passed_over.isdisjoint(tried):
                self._following.mark_resolved(name)
        else:  # a model was unloaded in the meantime, or the tables have changed
            try:
                await self._resolve(name)
            finally:
                self._retire_if_replaced(route)

    async def forgive(self, artifact: Digest) -> None:
        """Allows another attempt to load an artifact that crashed the server or could not be loaded."""
        await self._finder.forgive(artifact)
        self._following.mark_all_due()

    def is_unloaded(self, model: str, version: int) -> bool:
        """Returns true if a user has unloaded this version, or the whole model. May be called from any thread."""
        return self._finder.is_unloaded(model, version)

    def _send_routes(self) -> None:
        """Sends the data plane the current routes."""
        named = self._current.named()
        self._plane.order(orders.routes(named))
        self.on_names([(each.model, each.version) for each in named])

    def _switch(self, name: Name, route: Route) -> None:
        old = self._current.get(name, ())
        self._current[name] = route
        self._retire_if_replaced(old)
        if self._refresher is None:
            # The task gets an empty context, because it outlives the request that starts it.
            self._refresher = asyncio.create_task(self._keep_fresh(), context=Context())

    def _retire_if_replaced(self, models: Iterable[Served]) -> None:
        for served in models:
            if not self._current.names_of(served):
                self._loader.unload(served)

    def _forget(self, served: Served) -> None:
        """Drops the names that the model serves. The next request for one of them has to load it again."""
        names = self._current.names_of(served)
        self._retire_if_replaced([each for name in names for each in self._current.drop(name)])

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            for name in await self._following.due(self._current, self._refreshing):
                if name in self._current:
                    await self._check(name)

    async def _check(self, name: Name) -> None:
        """Resolves `name` again, and drops it if nothing can serve it any more."""
        try:
            await self._look_for(name)
        except Exception as error:
            if is_answer(error):
                _logger.warning("%s is no longer served: %s", display_name(name), error)
                self._retire_if_replaced(self._current.drop(name))
            else:  # the loaded model still answers requests
                log_trouble(_logger, error, "cannot look for a newer build of %s", display_name(name))
