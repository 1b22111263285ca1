"""What the registry needs of others: the stores of `db`, `artifacts.StoredArtifacts` and `DataPlane` satisfy it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from service.core.alias import Alias
from service.core.build import Build, BuildState
from service.core.digest import Digest
from service.core.metadata import ModelMetadata
from service.core.queueing import Scheduling
from service.core.signature import ModelSignature
from service.core.verification import Verification
from service.workers.inference.identity import Identity
from service.workers.inference.memory import Weight


class Builds(Protocol):
    def serving(self, model: str, version: int | None, targets: Sequence[str]) -> list[Build]:
        """The succeeded and verified builds of a version, newest-asked first; for None of every version, the newest
        first.
        """

    def unverified(self, artifacts: Collection[Digest]) -> Mapping[Digest, Verification]:
        """Those of the artifacts that wait for a worker's verification, or failed it. None of them is served."""

    def refusing(self, artifacts: Collection[Digest]) -> Collection[tuple[Digest, str]]:
        """Artifacts and the pools on which they do not compute what they should."""

    def list(
        self, model: str | None = None, state: BuildState | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Build], str | None]: ...

    def invalidate(self, artifact: Digest) -> object:
        """The artifact is lost or damaged: the builds that made it no longer serve."""


class Models(Protocol):
    def get(self, name: str) -> object:
        """Raises `NotFound`."""

    def version(self, name: str, number: int) -> Any:
        """Raises `NotFound`."""

    def metadata(self, name: str, number: int) -> ModelMetadata:
        """What was said of a version; nothing of one that there is not."""

    def all_versions(self) -> Sequence[Any]:
        """Every version of every model, each with its `name` and `number`; by name, the oldest version first."""


class Aliases(Protocol):
    def find(self, model: str, name: str) -> Alias | None:
        """What a name of versions, such as `stable`, stands for; None if nobody has set it."""


class Changes(Protocol):
    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        """A mark to ask with the next time, and the models that have changed since `mark`; None: any may have.

        Blocks. The first mark is -1.
        """


class Artifacts(Protocol):
    def check(self, artifact: Digest) -> None:
        """
        Raises:
            CorruptBlob, NotFound: some of its bytes are damaged or gone.
            NotReady: no worker of its target has verified it, or it crashed the server too often.
            OctetError: it cannot run here.
        """

    def check_crashes(self, artifact: Digest) -> None:
        """Raises `Quarantined`: it crashed the server too often. Reads no file of the artifact."""

    def order(self, identity: Identity, scheduling: Scheduling) -> tuple[dict[str, Any], ModelSignature]:
        """What the data plane is told to load a model whose artifacts were checked, and its
        signature. Raises as `check`."""

    def weigh(self, artifact: Digest) -> Weight:
        """What an instance of it would take of memory. Raises `CorruptBlob`, `NotFound`."""

    def hold(self, files: Collection[Digest]) -> None:
        """What the data plane maps from now on, and is not to be evicted from this machine."""

    def file_metadata(self, artifact: Digest) -> ModelMetadata:
        """What the file that it was made of says. Raises `CorruptBlob`, `NotFound`."""

    def forgive(self, artifact: Digest) -> None:
        """Holds earlier crashes against an artifact no more."""


class Plane(Protocol):
    """What keeps models in memory, and answers: `service.workers.data_plane.plane.DataPlane`."""

    async def load(self, order: Mapping[str, Any]) -> int:
        """The key of what is loaded from now on, or was already. Raises `OctetError`."""

    def describe(self, key: int, members: dict[str, Any]) -> None:
        """What is known of a loaded model: `orders.describe`."""

    async def unload(self, key: int) -> None:
        """Returns when its last request is over."""

    def leftovers(self) -> Collection[int]:
        """What is loaded, and was never asked for here."""

    async def gather(self) -> None:
        """Has it report now."""

    def order(self, members: dict[str, Any]) -> None:
        """What stands until another order of this type: `orders.routes`."""
