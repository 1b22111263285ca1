"""What is to be said of model versions at a glance: whether they answer here, and if not, why not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.core.build import Build, BuildState
from service.core.crash import Record
from service.core.digest import Digest
from service.core.errors import OctetError, Quarantined
from service.core.model import VersionState
from service.core.options import batch_of
from service.workers.crashes import quarantined

Version = tuple[str, int]


class Loaded(Protocol):
    """What a server knows of the models in its memory: `Registry` satisfies it."""

    @property
    def targets(self) -> Sequence[str]:
        """Those that run here, the best first."""

    def is_unloaded(self, model: str, version: int) -> bool:
        """Whether somebody has unloaded it."""

    def failure(self, artifact: Digest) -> OctetError | None:
        """Why an artifact could not be loaded when it was last tried."""


@dataclass(frozen=True)
class Standing:
    """How a model version stands.

    Attributes:
        reason: what a person should know of it, in a line; empty where it is ready.
        build: the one that answers, or that would: for this machine if there is one. None where none has succeeded.
    """

    state: VersionState
    reason: str = ""
    build: Build | None = None


def standings(
    versions: Iterable[Version], wanted: Sequence[Build], here: Loaded, held: Mapping[Digest, Record]
) -> dict[Version, Standing]:
    """How each version stands.

    Args:
        wanted: the builds that the models want, as they asked for them, what was asked for last first.
        held: the artifacts in quarantine.
    """
    builds: dict[Version, list[Build]] = {}
    for build in wanted:
        builds.setdefault((build.model, build.version), []).append(build)
    return {version: _standing(version, builds.get(version, []), here, held) for version in versions}


def _standing(version: Version, builds: Sequence[Build], here: Loaded, held: Mapping[Digest, Record]) -> Standing:
    built = [build for build in builds if build.state is BuildState.SUCCEEDED and not build.invalidated]
    alone = [build for build in built if batch_of(build.options) == 1]
    running_here = [build for build in alone if build.target in here.targets]
    if running_here:
        answering = min(running_here, key=lambda build: here.targets.index(build.target))
        return _loadable(version, answering, running_here, here, held)
    best = alone[0] if alone else None
    for build in builds:
        if not build.state.is_final:
            stage = f", {build.stage}" if build.stage else ""
            return Standing(VersionState.BUILDING, f"{build.state}{stage}", best)
    if best is not None:
        targets = ", ".join(sorted({build.target for build in alone}))
        return Standing(VersionState.ELSEWHERE, f"built for {targets}, which does not run here", best)
    return _not_built(builds)


def _loadable(
    version: Version, answering: Build, builds: Collection[Build], here: Loaded, held: Mapping[Digest, Record]
) -> Standing:
    if here.is_unloaded(*version):
        return Standing(VersionState.UNLOADED, "somebody unloaded it, until it is loaded again", answering)
    failures = [_failure(build, here, held) for build in builds]
    failure = failures[0]
    if failure is None or not all(failures):
        return Standing(VersionState.READY, "", answering)
    state = VersionState.QUARANTINED if isinstance(failure, Quarantined) else VersionState.FAILED
    return Standing(state, failure.message, answering)


def _failure(build: Build, here: Loaded, held: Mapping[Digest, Record]) -> OctetError | None:
    if build.artifact is None:
        return None
    record = held.get(build.artifact)
    return here.failure(build.artifact) if record is None else quarantined(build.artifact, record)


def _not_built(builds: Sequence[Build]) -> Standing:
    """By the build that was asked for last."""
    if not builds:
        return Standing(VersionState.NOT_BUILT, "no build of it was asked for")
    last = builds[0]
    if last.state is BuildState.FAILED:
        return Standing(VersionState.FAILED, str((last.error or {}).get("message", "no reason was recorded")))
    if last.state is BuildState.DIFFERENT:
        return Standing(VersionState.DIFFERENT, str((last.error or {}).get("message", "no reason was recorded")))
    if last.state is BuildState.CANCELED:
        return Standing(VersionState.CANCELED, f"build {last.id} was canceled")
    return Standing(VersionState.NOT_BUILT, "what was built of it is lost, or answers only in batches")
