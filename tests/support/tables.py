"""Builds, models and artifacts in memory, for tests of the inference registry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from service.cache import OciLayout
from service.core.builds.build import Build, BuildState
from service.core.cluster.queueing import Scheduling
from service.core.digest import Digest, digest_of
from service.core.errors import NotFound, OctetError
from service.core.models.alias import Alias
from service.core.models.buckets import merge_buckets
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.model import ModelVersion
from service.core.models.signature import ModelSignature
from service.core.verification.jobs import Verification
from service.runtime.stored import StoredArtifact
from service.runtime.trust import ANYBODY
from service.workers.data_plane import loads
from service.workers.inference.identity import Identity
from service.workers.inference.memory import Weight

TARGET = "x86-64-v4+vnni"
LESSER_TARGET = "x86-64-v3"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Runner(Protocol):
    """A model that a data plane can load: a `FunctionRunner` or a `Stored`."""

    signature: ModelSignature

    def part(self, batch: int, artifact: Digest) -> dict[str, Any]:
        """Returns the part of a load order for this model, in the form of `loads.part`."""


class Stored:
    """An artifact in an OCI layout. The data plane must be able to read the layout."""

    def __init__(self, layout: OciLayout, digest: Digest) -> None:
        self._stored = StoredArtifact.read(layout, digest, ANYBODY)
        self.signature = self._stored.config.signature

    def part(self, batch: int, artifact: Digest) -> dict[str, Any]:
        self._stored.check()
        return {**loads.part(batch, self._stored), "artifact": str(artifact)}


class Tables:
    """The builds, models, aliases and artifacts of one service. It implements the interfaces of all their stores."""

    def __init__(self) -> None:
        self.builds: list[Build] = []  # newest first
        self.aliases: dict[tuple[str, str], Alias] = {}
        self.weights: dict[Digest, Weight] = {}
        self.metadata_by_version: dict[tuple[str, int], ModelMetadata] = {}
        self.files_say: dict[Digest, ModelMetadata] = {}
        self.tokenizers: dict[Digest, Path] = {}
        self.queries = 0
        self.loads: list[Digest] = []
        self._versions: dict[str, int] = {}
        self._load: dict[Digest, Callable[[], Runner]] = {}
        self._checked: dict[Digest, Runner] = {}

    # The methods that tests call.

    def push(self, name: str) -> int:
        """Adds a new version of a model without a build, and returns its number."""
        self._versions[name] = self._versions.get(name, 0) + 1
        return self._versions[name]

    def built(
        self, name: str, version: int, load: Callable[[], Runner] | OctetError, target: str = TARGET, salt: str = ""
    ) -> Build:
        """Adds a succeeded build. `load` creates the model of its artifact, or is the error that loading it raises."""
        artifact = digest_of(f"{name} {version} {target} {len(self.builds)} {salt}".encode())
        self._load[artifact] = load if not isinstance(load, OctetError) else _raising(load)
        return self.build(name, version, BuildState.SUCCEEDED, target=target, artifact=artifact)

    def build(self, name: str, version: int, state: BuildState, target: str = TARGET, **members: Any) -> Build:
        identity = f"build-{len(self.builds)}"
        key = digest_of(identity.encode())
        build = Build(identity, key, name, version, key, target, "litert-reference", state, _EPOCH)
        self.builds.insert(0, replace(build, **members))
        return self.builds[0]

    def model(self, name: str, load: Callable[[], Runner]) -> Build:
        """Adds a model whose first version has a succeeded build."""
        return self.built(name, self.push(name), load)

    def promote(self, name: str, version: int, percent: int = 100, alias: str = "stable") -> None:
        known = self.aliases.get((name, alias))
        self.aliases[name, alias] = (
            known.promoted(version, percent, _EPOCH) if known else Alias(name, alias, version, _EPOCH)
        )

    # The methods that the registry calls.

    def serving(self, model: str, version: int | None, targets: Sequence[str]) -> list[Build]:
        self.queries += 1
        found = [
            build
            for build in self.builds
            if build.model == model
            and version in (None, build.version)
            and build.state is BuildState.SUCCEEDED
            and build.target in targets
        ]
        return sorted(found, key=lambda build: -build.version)

    def list(
        self, model: str | None = None, state: BuildState | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Build], str | None]:
        found = [build for build in self.builds if model in (None, build.model) and state in (None, build.state)]
        return found[:limit], None

    def unverified(self, artifacts: Collection[Digest]) -> Mapping[Digest, Verification]:
        return {}

    def refusing(self, artifacts: Collection[Digest]) -> Collection[tuple[Digest, str]]:
        return []

    def find(self, model: str, name: str) -> Alias | None:
        return self.aliases.get((model, name))

    def invalidate(self, artifact: Digest) -> None:
        self.builds = [build for build in self.builds if build.artifact != artifact]

    def get(self, name: str) -> object:
        if name not in self._versions:
            raise NotFound(f"there is no model {name!r}")
        return name

    def version(self, name: str, number: int) -> object:
        if not 1 <= number <= self._versions[name]:
            raise NotFound(f"model {name!r} has no version {number}")
        return number

    def all_versions(self) -> Sequence[ModelVersion]:
        return [
            ModelVersion(name, number, digest_of(name.encode()), "tflite", 1, _EPOCH)
            for name, newest in sorted(self._versions.items())
            for number in range(1, newest + 1)
        ]

    def metadata(self, name: str, number: int) -> ModelMetadata:
        return self.metadata_by_version.get((name, number), NOTHING)

    def file_metadata(self, artifact: Digest) -> ModelMetadata:
        return self.files_say.get(artifact, NOTHING)

    def tokenizer(self, digest: Digest) -> Path:
        if digest not in self.tokenizers:
            raise NotFound(f"{digest} is not stored")
        return self.tokenizers[digest]

    def hold(self, files: Collection[Digest]) -> None:
        self.held = set(files)

    def weigh(self, artifact: Digest) -> Weight:
        return self.weights.get(artifact, Weight({}, 0))

    def check(self, artifact: Digest) -> None:
        self.loads.append(artifact)
        self._checked[artifact] = self._load[artifact]()

    def order(self, identity: Identity, scheduling: Scheduling) -> tuple[dict[str, Any], ModelSignature]:
        sizes = [(1, identity.artifact), *((1, artifact) for artifact in identity.buckets), *identity.variants]
        signatures = [self._checked[artifact].signature for artifact in (identity.artifact, *identity.buckets)]
        whole = merge_buckets(signatures) if len(signatures) > 1 else signatures[0]
        parts = [self._checked[artifact].part(batch, artifact) for batch, artifact in sizes]
        order = loads.load_parts(identity.model, str(identity.version), identity.target, parts, whole, scheduling)
        return order, whole

    def check_crashes(self, artifact: Digest) -> None:
        pass

    def forgive(self, artifact: Digest) -> None:
        pass


def _raising(error: OctetError) -> Callable[[], Runner]:
    def load() -> Runner:
        raise error

    return load
