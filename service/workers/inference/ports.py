"""The interfaces that the registry needs: the stores of `db`, `artifacts.StoredArtifacts` and `DataPlane` implement
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from service.core.builds.build import Build, BuildState
from service.core.cluster.queueing import Scheduling
from service.core.digest import Digest
from service.core.models.alias import Alias
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature
from service.core.verification.jobs import Verification
from service.workers.inference.identity import Identity
from service.workers.inference.memory import Weight


class Builds(Protocol):
    def serving(self, model: str, version: int | None, targets: Sequence[str]) -> list[Build]:
        """Returns the succeeded and verified builds of a version, most recently requested first. If `version` is None,
        returns the builds of all versions, newest version first.
        """

    def unverified(self, artifacts: Collection[Digest]) -> Mapping[Digest, Verification]:
        """Returns the verifications of those artifacts that wait for one by a worker, or failed it. These artifacts are
        not served.
        """

    def refusing(self, artifacts: Collection[Digest]) -> Collection[tuple[Digest, str]]:
        """Returns artifacts with the pools on which they do not compute the expected outputs."""

    def list(
        self, model: str | None = None, state: BuildState | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Build], str | None]: ...

    def invalidate(self, artifact: Digest) -> object:
        """Marks the builds that produced a lost or damaged artifact, so that they no longer serve."""


class Models(Protocol):
    def get(self, name: str) -> object:
        """Returns the model. Raises `NotFound`."""

    def version(self, name: str, number: int) -> Any:
        """Returns one version of a model. Raises `NotFound`."""

    def metadata(self, name: str, number: int) -> ModelMetadata:
        """Returns the metadata that a user has set for a version; empty metadata if the version does not exist."""

    def all_versions(self) -> Sequence[Any]:
        """Returns every version of every model, each with its `name` and `number`, sorted by name, oldest version
        first.
        """


class Aliases(Protocol):
    def find(self, model: str, name: str) -> Alias | None:
        """Returns the alias of a model with this name, such as `stable`, or None if it is not set."""


class Changes(Protocol):
    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        """Returns a mark for the next call, and the models that have changed since `mark`. None instead of models means
        that any may have changed.

        Blocks. The first mark is -1.
        """


class Artifacts(Protocol):
    def check(self, artifact: Digest) -> None:
        """Checks that an artifact may be loaded.

        Raises:
            CorruptBlob, NotFound: a part of the artifact is damaged or gone.
            NotReady: no worker of the artifact's target has verified it, or the artifact crashed the server too often.
            OctetError: the artifact cannot run here.
        """

    def check_crashes(self, artifact: Digest) -> None:
        """Raises `Quarantined` if the artifact crashed the server too often. Reads no file of the artifact."""

    def order(self, identity: Identity, scheduling: Scheduling) -> tuple[dict[str, Any], ModelSignature]:
        """Returns the order to load a model whose artifacts were checked, and the model's signature. Raises the same
        errors as `check`.
        """

    def weigh(self, artifact: Digest) -> Weight:
        """Returns the memory that an instance of the artifact would take. Raises `CorruptBlob`, `NotFound`."""

    def hold(self, files: Collection[Digest]) -> None:
        """Keeps these files, which the data plane maps, from being evicted from this machine. All other files may be
        evicted.
        """

    def file_metadata(self, artifact: Digest) -> ModelMetadata:
        """Returns the metadata of the file that the artifact was built from. Raises `CorruptBlob`, `NotFound`."""

    def tokenizer(self, digest: Digest) -> Path:
        """Returns the file of a tokenizer, fetching it first if it is not on this machine. Raises `CorruptBlob`,
        `NotFound`.
        """

    def forgive(self, artifact: Digest) -> None:
        """Deletes the record of earlier crashes of an artifact."""


class Plane(Protocol):
    """Keeps models in memory and answers requests: `service.workers.data_plane.plane.DataPlane`."""

    async def load(self, order: Mapping[str, Any]) -> int:
        """Loads a model if it is not loaded, and returns its key. Raises `OctetError`."""

    def describe(self, key: int, members: dict[str, Any]) -> None:
        """Sets the metadata of a loaded model: `orders.describe`."""

    async def unload(self, key: int) -> None:
        """Unloads a model, and returns when its last request is over."""

    def leftovers(self) -> Collection[int]:
        """Returns the keys of the loaded models that this process has not requested."""

    async def gather(self) -> None:
        """Makes the data plane report its counts, and waits for the report."""

    def order(self, members: dict[str, Any]) -> None:
        """Sends an order that applies until another order of its type: `orders.routes`."""
