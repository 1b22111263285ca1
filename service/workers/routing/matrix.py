"""Summarizes for each pool of a cluster: the pool's build of a model version, the checks of this build, and its
figures.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.artifacts.explanation import build_explanation
from service.core.builds.build import Build, BuildState
from service.core.builds.options import batch_of, bucket_index_of
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound, Unsupported
from service.core.target import TARGETS, Device
from service.core.verification.agreement import Outcome, is_different, may_serve
from service.core.verification.jobs import Verification, VerificationState
from service.db import VerificationStore
from service.workers.inference.candidates import candidates
from service.workers.inference.ports import Builds

_S_PER_HOUR, _PER_MILLION = 3600.0, 1e6
_DEVICES: Mapping[str, Device] = {target.name: target.device for target in TARGETS}
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, Unsupported)


class CellState(StrEnum):
    """The state of a model version for one target."""

    READY = "ready"  # built and verified
    UNVERIFIED = "unverified"  # built, but not served until a worker of the target has verified it
    REFUSED = "refused"  # not served: a worker of the target found that the version's outputs are wrong there
    QUARANTINED = "quarantined"  # not served: the artifact crashed servers too often
    QUEUED = "queued"
    BUILDING = "building"
    FAILED = "failed"
    DIFFERENT = "different"  # not served: the artifact differs from its reference runtime
    CANCELED = "canceled"
    NONE = "none"  # no build was requested, or the artifact is lost


_UNFINISHED = {
    BuildState.QUEUED: CellState.QUEUED,
    BuildState.RUNNING: CellState.BUILDING,
    BuildState.FAILED: CellState.FAILED,
    BuildState.DIFFERENT: CellState.DIFFERENT,
    BuildState.CANCELED: CellState.CANCELED,
}


@dataclass(frozen=True)
class Pool:
    """Workers with the same target.

    Attributes:
        name: None for a target that has builds but no worker.
        workers: the number of workers that are ready.
        capacity: the total number of calls that these workers compute concurrently.
        loaded: the number of workers that have the version in memory.
    """

    name: str | None
    target: str
    workers: int = 0
    capacity: int = 0
    loaded: int = 0


@dataclass(frozen=True)
class Figures:
    """The speed of an artifact, from its reports. A figure is None if it was not measured.

    Attributes:
        machine: the machine that was measured.
        threads: the number of threads that shared a call.
        p50_s: the median time of a call of the model.
        p99_s: the 99th percentile of the time of a call.
        per_s: the number of calls per second if each starts when the one before has ended.
        peak_percent: the multiplication rate of the kernels, in percent of the maximum that the machine reaches with
            the target's instructions.
    """

    machine: str | None = None
    threads: int | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    per_s: float | None = None
    peak_percent: float | None = None


@dataclass(frozen=True)
class Cell:
    """The state of a model version for one target, with the build and its checks.

    Attributes:
        build: the build that is served, or the one that was requested last if none is served.
        verified: True if every value equalled the canonical form's, and every difference from the reference runtime is
            one that the mode documents. None if this is not known.
        checked: a sentence about the reference that the build was compared with; empty if no report contains it.
        memory_bytes: the size of the code, the constants and the memory that one call computes in. None if it is not
            known.
        verifications: the verifications by workers, by pool. The entry of the empty name applies to all pools.
        outcome: the outcome of the comparison with the reference runtime on the build host. None if no report contains
            it.
        accepted: True if the build is served although it differs from its reference.
    """

    state: CellState
    build: Build | None = None
    verified: bool | None = None
    checked: str = ""
    figures: Figures = Figures()
    memory_bytes: int | None = None
    verifications: Mapping[str, Verification] = field(default_factory=dict)
    outcome: Outcome | None = None
    accepted: bool = False

    def for_pool(self, pool: Pool) -> Cell:
        """Returns the cell with the verification by a worker of this pool. If this pool has not verified the artifact,
        uses a verification by any worker of the target. If no worker has, returns the cell as built.
        """
        verification = self.verifications.get(pool.name or "")
        if verification is None or not verification.state.is_final:
            verification = self.verifications.get("")
        if verification is None or verification.state is VerificationState.QUEUED:
            return self
        figures = _figures_in(verification) or self.figures
        checked = verification.summary or self.checked
        if verification.state is VerificationState.FAILED:
            return replace(self, state=CellState.REFUSED, verified=False, checked=checked, figures=figures)
        return replace(self, checked=checked, figures=figures)

    def is_measured_by(self, pool: Pool) -> bool:
        """Returns true if a worker of the pool has measured the artifact, or is going to."""
        every = self.verifications.get("")
        is_from_pool = every is not None and every.result.get("pool", pool.name) == pool.name
        return pool.name in self.verifications or is_from_pool

    def is_to_be_measured_by(self, pool: Pool) -> bool:
        """Returns true if a worker of the pool is going to measure the artifact or is measuring it."""
        return any(not each.state.is_final for name, each in self.verifications.items() if name in ("", pool.name))


def cell(
    wanted: Sequence[Build],
    builds: Builds,
    verifications: VerificationStore,
    layout: OciLayout,
    quarantine: Collection[Digest],
    of: tuple[str, int],
    target: str,
) -> Cell:
    """Returns the state of the model version `of` for a target. Blocks.

    Builds of other batch sizes and of larger shapes are parts of the model, so they have no cells of their own.

    Args:
        wanted: the builds that the model has requested, most recently requested first.
        quarantine: the artifacts in quarantine.
    """
    answering = next((build for build, _ in candidates(builds, [target], *of, lambda artifact: True)), None)
    if answering is not None and answering.artifact is not None:
        return _built(answering, answering.artifact, layout, quarantine, verifications.of_pools(answering.artifact))
    for build in wanted:
        is_it = (build.model, build.version) == of and build.target == target
        if is_it and batch_of(build.options) == 1 and bucket_index_of(build.options) == 0:
            if build.artifact and not build.invalidated and (found := verifications.of_pools(build.artifact)):
                return _built(build, build.artifact, layout, quarantine, found)
            return Cell(_UNFINISHED.get(build.state, CellState.NONE), build)
    return Cell(CellState.NONE)


def targets_of(wanted: Iterable[Build], of: tuple[str, int]) -> list[str]:
    """Returns the targets of a model version's builds, including builds that were only requested; best first."""
    found = {build.target for build in wanted if (build.model, build.version) == of}
    return sorted(found, key=lambda target: list(_DEVICES).index(target) if target in _DEVICES else len(_DEVICES))


def cost_per_million(price_per_hour: float, figures: Figures, pool: Pool) -> float | None:
    """Returns the cost of a million predictions on a pool, in the currency of the price. None if no time was measured.

        price per hour / 3600 / calls per second * 10^6 / concurrent calls of one worker

    Calls per second are measured with each call starting when the previous call has ended. If they were not measured, 1
    / p50 is used. The price is that of one worker. A worker computes `capacity / workers` calls of one thread
    concurrently; if a call was measured on several threads, this number is divided by them, but is at least one. A GPU
    computes one call at a time. The result assumes workers that are busy all the time and calls that do not slow each
    other down, so it is a lower bound of the bill.
    """
    call_s = 1.0 / figures.per_s if figures.per_s else figures.p50_s
    if call_s is None or not pool.workers:
        return None
    at_once = max(1.0, pool.capacity / pool.workers / max(1, figures.threads or 1))
    if _DEVICES.get(pool.target) == "cuda":
        at_once = 1.0
    return price_per_hour / _S_PER_HOUR * call_s * _PER_MILLION / at_once


def _built(
    build: Build,
    artifact: Digest,
    layout: OciLayout,
    quarantine: Collection[Digest],
    verifications: Mapping[str, Verification],
) -> Cell:
    numerics, by_worker = _report(layout, artifact, Report.NUMERICS), verifications.get("")
    is_passed = by_worker is not None and by_worker.state is VerificationState.PASSED
    verified = numerics.get("verified") is True or (is_passed and numerics.get("outcome") != Outcome.DIFFERENT)
    state = CellState.READY if verified or may_serve(numerics) else CellState.UNVERIFIED
    if is_different(numerics):
        state = CellState.DIFFERENT
    if artifact in quarantine:
        state = CellState.QUARANTINED
    summary = numerics.get("summary")
    figures, memory_bytes = _figures(layout, artifact), _memory_bytes(layout, artifact)
    checked = summary if isinstance(summary, str) else ""
    outcome = numerics.get("outcome")
    return Cell(
        state,
        build,
        verified,
        checked,
        figures,
        memory_bytes,
        verifications,
        Outcome(outcome) if outcome in tuple(Outcome) else None,
        numerics.get("accepted") is True,
    )


def _figures_in(verification: Verification) -> Figures | None:
    """Returns the figures that a worker measured, or None if it measured none."""
    result = verification.result
    if "p50_s" not in result:
        return None
    return Figures(**{each.name: result.get(each.name) for each in fields(Figures)})


def _figures(layout: OciLayout, artifact: Digest) -> Figures:
    """Returns the figures in the artifact's reports. A figure that is missing or malformed is left out."""
    profile = _report(layout, artifact, Report.PROFILE)
    try:
        machine, threads = str(profile["machine"]), int(profile["threads"])
        p50_s = float(profile["model_seconds"])
    except _DAMAGED:
        return Figures()
    try:
        explanation = build_explanation(_report(layout, artifact, Report.COVERAGE), profile)
        peak_percent = explanation.rates(explanation.macs, explanation.seconds)["peak_percent"]
    except _DAMAGED:
        peak_percent = None
    return Figures(machine, threads, p50_s, peak_percent=peak_percent)


def _memory_bytes(layout: OciLayout, artifact: Digest) -> int | None:
    try:
        manifest = layout.manifest(artifact)
        arena_bytes = int(json.loads(layout.blobs.read(manifest.config.digest))["plan"]["arena_bytes"])
    except (*_DAMAGED, NotFound, CorruptBlob):
        return None
    return arena_bytes + sum(layer.size_bytes for layer in manifest.layers)


def _report(layout: OciLayout, artifact: Digest, kind: Report) -> dict[str, Any]:
    """Returns a report of an artifact, or an empty dictionary if it is missing or damaged. The server that loads the
    artifact reports damage.
    """
    try:
        attached = layout.attached(artifact, kind)
        found = None if attached is None else json.loads(attached)
    except (CorruptBlob, NotFound, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
