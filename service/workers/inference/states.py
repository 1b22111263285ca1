"""Summarizes the state of model versions: whether each is served here, and if it is not served, why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.core.builds.build import Build, BuildState
from service.core.builds.options import batch_of
from service.core.cluster.crash import Record
from service.core.digest import Digest
from service.core.errors import OctetError, Quarantined
from service.core.models.model import VersionState
from service.workers.crashes import quarantine_error

Version = tuple[str, int]


class Loaded(Protocol):
    """The interface to the models in a server's memory, which `Registry` implements."""

    @property
    def targets(self) -> Sequence[str]:
        """The targets that run here, best first."""

    def is_unloaded(self, model: str, version: int) -> bool:
        """Returns true if a user has unloaded the version."""

    def failure(self, artifact: Digest) -> OctetError | None:
        """Returns why an artifact could not be loaded at the last attempt."""


@dataclass(frozen=True)
class VersionStatus:
    """The state of a model version.

    Attributes:
        reason: a line that explains the state to users; empty if the version is ready.
        build: the build that serves the version, or that would serve it, preferably one for this machine. None if none
            has succeeded.
    """

    state: VersionState
    reason: str = ""
    build: Build | None = None


def version_statuses(
    versions: Iterable[Version], wanted: Sequence[Build], server: Loaded, quarantine: Mapping[Digest, Record]
) -> dict[Version, VersionStatus]:
    """Returns the state of each version.

    Args:
        wanted: the builds that the models have requested, most recently requested first.
        quarantine: the artifacts in quarantine.
    """
    builds: dict[Version, list[Build]] = {}
    for build in wanted:
        builds.setdefault((build.model, build.version), []).append(build)
    return {version: _status_of(version, builds.get(version, []), server, quarantine) for version in versions}


def _status_of(
    version: Version, builds: Sequence[Build], server: Loaded, quarantine: Mapping[Digest, Record]
) -> VersionStatus:
    built = [build for build in builds if build.state is BuildState.SUCCEEDED and not build.invalidated]
    alone = [build for build in built if batch_of(build.options) == 1]
    running_here = [build for build in alone if build.target in server.targets]
    if running_here:
        answering = min(running_here, key=lambda build: server.targets.index(build.target))
        return _loadable(version, answering, running_here, server, quarantine)
    best = alone[0] if alone else None
    for build in builds:
        if not build.state.is_final:
            stage = f", {build.stage}" if build.stage else ""
            return VersionStatus(VersionState.BUILDING, f"{build.state}{stage}", best)
    if best is not None:
        targets = ", ".join(sorted({build.target for build in alone}))
        return VersionStatus(VersionState.ELSEWHERE, f"built for {targets}, which does not run here", best)
    return _not_built(builds)


def _loadable(
    version: Version, answering: Build, builds: Collection[Build], server: Loaded, quarantine: Mapping[Digest, Record]
) -> VersionStatus:
    if server.is_unloaded(*version):
        return VersionStatus(
            VersionState.UNLOADED, "a user unloaded it; it stays so until it is loaded again", answering
        )
    failures = [_failure(build, server, quarantine) for build in builds]
    failure = failures[0]
    if failure is None or not all(failures):
        return VersionStatus(VersionState.READY, "", answering)
    state = VersionState.QUARANTINED if isinstance(failure, Quarantined) else VersionState.FAILED
    return VersionStatus(state, failure.message, answering)


def _failure(build: Build, server: Loaded, quarantine: Mapping[Digest, Record]) -> OctetError | None:
    if build.artifact is None:
        return None
    record = quarantine.get(build.artifact)
    return server.failure(build.artifact) if record is None else quarantine_error(build.artifact, record)


def _not_built(builds: Sequence[Build]) -> VersionStatus:
    """Returns the state that follows from the build that was requested last."""
    if not builds:
        return VersionStatus(VersionState.NOT_BUILT, "no build of it was requested")
    last = builds[0]
    if last.state is BuildState.FAILED:
        return VersionStatus(VersionState.FAILED, str((last.error or {}).get("message", "no reason was recorded")))
    if last.state is BuildState.DIFFERENT:
        return VersionStatus(VersionState.DIFFERENT, str((last.error or {}).get("message", "no reason was recorded")))
    if last.state is BuildState.CANCELED:
        return VersionStatus(VersionState.CANCELED, f"build {last.id} was canceled")
    return VersionStatus(VersionState.NOT_BUILT, "its artifacts are lost, or exist only for batches")
