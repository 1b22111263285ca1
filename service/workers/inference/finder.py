"""The best artifact for a version of a model that is loaded here, or can be; and what somebody has unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from service.core.build import Build
from service.core.digest import Digest
from service.core.errors import DatabaseLost, DatabaseUnreachable, NotFound, NotReady, OctetError
from service.core.metadata import ModelMetadata
from service.workers.inference.candidates import Candidate
from service.workers.inference.identity import Identity
from service.workers.inference.loader import Loader
from service.workers.inference.served import Served
from service.workers.inference.tables import Tables


class CannotLoad(Exception):
    """There are builds that could answer, but not here or not now.

    Attributes:
        error: to show.
    """

    def __init__(self, error: OctetError) -> None:
        super().__init__(error)
        self.error = error


class Unwanted(Exception):
    """Before it was found, nobody wanted it any more."""


class Finder:
    """Asks the tables, and has the loader load. For one event loop; whatever blocks runs in a thread.

    Attributes:
        passed_over: the models and versions for which something better was there than what was found, and failed.
    """

    def __init__(self, tables: Tables, loader: Loader) -> None:
        self._tables, self._loader = tables, loader
        self._unloaded: set[tuple[str, int | None]] = set()
        self.passed_over: set[tuple[str, int | None]] = set()

    async def find(
        self,
        model: str,
        version: int | None,
        is_wanted: Callable[[], bool] = lambda: True,
        beside: Served | None = None,
    ) -> Served:
        """The best that is loaded, or can be.

        Args:
            is_wanted: asked when the tables have answered; if not, nothing is loaded.
            beside: what the caller holds meanwhile.

        Raises:
            CannotLoad: there are builds, but none can be loaded here.
            NotFound, NotReady: there is no build that could be.
            Unwanted: see above.
        """
        failure: OctetError | None = None
        self.passed_over.discard((model, version))
        candidates = await asyncio.to_thread(self._candidates, model, version)
        if not is_wanted():
            raise Unwanted
        for build, identity in candidates:
            try:
                return await self._load(build, identity, beside)
            except OctetError as error:
                failure = error
                self.passed_over.add((model, version))
        if failure is None:
            raise await asyncio.to_thread(self._tables.why_not_ready, model, version)
        kind = type(failure) if isinstance(failure, NotReady) else NotReady
        message = f"model {model!r} cannot be loaded here: {failure.message}"
        here = kind(message, hint=failure.hint, retry_after_s=failure.retry_after_s)
        raise CannotLoad(here) from failure

    async def allow(self, model: str, version: int | None) -> None:
        """Takes a `forbid` back, and lets what could not be loaded be tried again."""
        self._unloaded -= {(model, None), (model, version)}
        for _, identity in await asyncio.to_thread(self._candidates, model, version):
            await self.forgive(identity.artifact)

    async def forbid(self, model: str, version: int | None) -> None:
        """Finds a version, or any of a model, no more.

        Raises:
            NotFound: there is no such model or version.
        """
        await asyncio.to_thread(self._tables.check_known, model, version)
        self._unloaded.add((model, version))

    def forget(self, model: str, versions: Collection[int], *, entirely: bool) -> None:
        """What was forbidden of versions that are deleted is forbidden no more."""
        gone = {(model, version) for version in versions} | ({(model, None)} if entirely else set())
        self._unloaded -= gone
        self.passed_over -= gone

    async def forgive(self, artifact: Digest) -> None:
        """Lets an artifact be tried again that crashed the server, or could not be loaded."""
        await asyncio.to_thread(self._loader.forgive, artifact)

    def is_unloaded(self, model: str, version: int) -> bool:
        """Whether somebody has unloaded a version, or the whole model. From any thread."""
        return not self._unloaded.isdisjoint({(model, None), (model, version)})

    async def _load(self, build: Build, identity: Identity, beside: Served | None) -> Served:
        while True:
            if self.is_unloaded(identity.model, identity.version):
                raise NotReady(
                    f"version {identity.version} of model {identity.model!r} was unloaded",
                    hint=f"POST /v2/repository/models/{identity.model}/load loads it",
                )
            served = await self._loader.load(build, identity, beside)
            with served.held():  # nothing takes its room meanwhile
                self._loader.describe(served, await asyncio.to_thread(self._metadata, identity))
            if self.is_unloaded(identity.model, identity.version):  # while it was loaded
                self._loader.unload(served)
            elif self._loader.holds(served):  # and nobody was faster to unload it again
                return served

    def _metadata(self, identity: Identity) -> ModelMetadata:
        """What was said of a version, and what its file says."""
        return self._tables.models.metadata(identity.model, identity.version).over(
            self._loader.file_metadata(identity.artifact)
        )

    def _candidates(self, model: str, version: int | None) -> list[Candidate]:
        return self._tables.candidates(model, version, self._loader.is_usable)


def is_answer(error: Exception) -> bool:
    """Whether the tables say that nothing can answer for a name; if not, they could not be read."""
    return isinstance(error, NotFound | NotReady) and not isinstance(error, DatabaseUnreachable | DatabaseLost)
