"""Finds the best artifact for a version of a model, among those that are loaded or can be loaded on this machine.
Remembers which models users have unloaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from service.core.builds.build import Build
from service.core.digest import Digest
from service.core.errors import DatabaseLost, DatabaseUnreachable, NotFound, NotReady, OctetError
from service.core.models.metadata import ModelMetadata
from service.workers.inference.candidates import Candidate
from service.workers.inference.identity import Identity
from service.workers.inference.loader import Loader
from service.workers.inference.served import Served
from service.workers.inference.tables import Tables


class CannotLoad(Exception):
    """There are builds that could serve the model, but none can be loaded on this machine now.

    Attributes:
        error: the error to report.
    """

    def __init__(self, error: OctetError) -> None:
        super().__init__(error)
        self.error = error


class Unwanted(Exception):
    """The caller no longer needs the model that was being looked for."""


class Finder:
    """Reads the tables, and makes the loader load artifacts. For one event loop; blocking work runs in a thread.

    Attributes:
        passed_over: the models and versions for which a better candidate than the result failed to load.
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
        """Returns the best candidate that is loaded or can be loaded.

        Args:
            is_wanted: called after the tables were read; if it returns false, nothing is loaded.
            beside: a model that the caller keeps loaded during the call, so it cannot be unloaded to make room.

        Raises:
            CannotLoad: there are builds, but none can be loaded here.
            NotFound, NotReady: the model has no build that could be loaded.
            Unwanted: `is_wanted` returned false.
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
        error_type = type(failure) if isinstance(failure, NotReady) else NotReady
        message = f"model {model!r} cannot be loaded here: {failure.message}"
        unloadable = error_type(message, hint=failure.hint, retry_after_s=failure.retry_after_s)
        raise CannotLoad(unloadable) from failure

    async def find_canary(self, model: str, version: int | None, main: Served) -> tuple[Served | None, str]:
        """Returns the canary, and a warning if it cannot be loaded, so that the main version gets its requests.

        Args:
            version: None if the name has no canary.
            main: the main version, which the caller keeps loaded during the call.
        """
        if version is None:
            return None, ""
        try:
            return await self.find(model, version, beside=main), ""
        except (CannotLoad, NotFound, NotReady) as error:
            return None, f"version {version} gets no requests: {error}"

    async def allow(self, model: str, version: int | None) -> None:
        """Reverts `forbid`. Also allows another attempt to load artifacts that could not be loaded."""
        self._unloaded -= {(model, None), (model, version)}
        for _, identity in await asyncio.to_thread(self._candidates, model, version):
            await self.forgive(identity.artifact)

    async def forbid(self, model: str, version: int | None) -> None:
        """Makes `find` ignore the builds of this version, or of all versions of the model, from now on.

        Raises:
            NotFound: the model or version does not exist.
        """
        await asyncio.to_thread(self._tables.check_exists, model, version)
        self._unloaded.add((model, version))

    def forget(self, model: str, versions: Collection[int], *, entirely: bool) -> None:
        """Removes the records about deleted versions, so that they are no longer forbidden."""
        gone = {(model, version) for version in versions} | ({(model, None)} if entirely else set())
        self._unloaded -= gone
        self.passed_over -= gone

    async def forgive(self, artifact: Digest) -> None:
        """Allows another attempt to load an artifact that crashed the server or could not be loaded."""
        await asyncio.to_thread(self._loader.forgive, artifact)

    def is_unloaded(self, model: str, version: int) -> bool:
        """Returns true if a user has unloaded this version, or the whole model. May be called from any thread."""
        return not self._unloaded.isdisjoint({(model, None), (model, version)})

    async def _load(self, build: Build, identity: Identity, beside: Served | None) -> Served:
        while True:
            if self.is_unloaded(identity.model, identity.version):
                raise NotReady(
                    f"version {identity.version} of model {identity.model!r} was unloaded",
                    hint=f"POST /v2/repository/models/{identity.model}/load loads it",
                )
            served = await self._loader.load(build, identity, beside)
            with served.hold():  # the model must not be unloaded to make room for another
                self._loader.describe(served, *await asyncio.to_thread(self._metadata, identity))
            # a user unloaded the model while it was being loaded
            if self.is_unloaded(identity.model, identity.version):
                self._loader.unload(served)
            elif self._loader.holds(served):  # false if the model was unloaded in the meantime
                return served

    def _metadata(self, identity: Identity) -> tuple[ModelMetadata, Path | None]:
        """Returns the metadata of a version, which consists of the members that a user has set and the remaining ones
        from the model's file; and the file of its tokenizer.
        """
        stored = self._tables.models.metadata(identity.model, identity.version)
        metadata = stored.over(self._loader.file_metadata(identity.artifact))
        return metadata, self._loader.tokenizer(metadata)

    def _candidates(self, model: str, version: int | None) -> list[Candidate]:
        return self._tables.candidates(model, version, self._loader.is_usable)


def is_answer(error: Exception) -> bool:
    """Returns true if the error means that nothing can serve a name, and false if the tables could not be read."""
    return isinstance(error, NotFound | NotReady) and not isinstance(error, DatabaseUnreachable | DatabaseLost)
