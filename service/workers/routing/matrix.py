"""What each pool of a cluster has of a version of a model: its build, how that was checked, and its figures."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from service.cache import OciLayout
from service.core.agreement import Outcome, is_different, may_serve
from service.core.artifact import Report
from service.core.build import Build, BuildState
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound, Unsupported
from service.core.explanation import explained
from service.core.options import batch_of, place_of
from service.core.target import TARGETS, Device
from service.core.verification import Verification, VerificationState
from service.db import VerificationStore
from service.workers.inference.candidates import candidates
from service.workers.inference.ports import Builds

_S_PER_HOUR, _PER_MILLION = 3600.0, 1e6
_DEVICES: Mapping[str, Device] = {target.name: target.device for target in TARGETS}
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, Unsupported)


class CellState(StrEnum):
    """How a version of a model stands for a target."""

    READY = "ready"  # it is built and verified
    UNVERIFIED = "unverified"  # it is built, and no worker of the target has verified it yet: it is not served
    REFUSED = "refused"  # it does not compute there what it should: it is not served
    QUARANTINED = "quarantined"  # it crashed servers too often
    QUEUED = "queued"
    BUILDING = "building"
    FAILED = "failed"
    DIFFERENT = "different"  # it differs from its reference runtime: it is not served
    CANCELED = "canceled"
    NONE = "none"  # no build was asked for, or what was built is lost


_UNFINISHED = {
    BuildState.QUEUED: CellState.QUEUED,
    BuildState.RUNNING: CellState.BUILDING,
    BuildState.FAILED: CellState.FAILED,
    BuildState.DIFFERENT: CellState.DIFFERENT,
    BuildState.CANCELED: CellState.CANCELED,
}


@dataclass(frozen=True)
class Pool:
    """Workers that are alike.

    Attributes:
        name: None for none: there are builds for the target, and nobody who runs them.
        workers: how many of them are ready.
        capacity: how many calls these compute at a time, together.
        loaded: how many of them have the version in memory.
    """

    name: str | None
    target: str
    workers: int = 0
    capacity: int = 0
    loaded: int = 0


@dataclass(frozen=True)
class Figures:
    """What an artifact's reports say of its speed, each None where nothing was measured.

    Attributes:
        machine: where it was measured.
        threads: that shared a call.
        p50_s: the median time of a call of the model.
        p99_s: of a hundred calls, the time that one takes longer than.
        per_s: how many are answered in a second, one after the other.
        peak_percent: of what the machine multiplies at most with the target's instructions, the rate of its kernels.
    """

    machine: str | None = None
    threads: int | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    per_s: float | None = None
    peak_percent: float | None = None


@dataclass(frozen=True)
class Cell:
    """What there is for a target.

    Attributes:
        build: the one that answers; where none does, the one that was asked for last.
        verified: True if every value equalled the canonical form's and no difference from the reference runtime is
            beyond what the mode documents; None if that is not known.
        checked: against what, in a sentence; empty where no report says it.
        memory_bytes: of the code, the constants and what one call computes in; None where the artifact does not say.
        verifications: by workers, by pool; that of no pool counts for all.
        outcome: of the comparison with the reference runtime, where it was built; None if no report contains it.
        accepted: True if it is served although it differs from its reference.
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

    def seen_by(self, pool: Pool) -> Cell:
        """The same with what a worker of the pool found; where none of it did, any of the target; else the build."""
        verification = self.verifications.get(pool.name or "")
        if verification is None or not verification.state.is_final:
            verification = self.verifications.get("")
        if verification is None or verification.state is VerificationState.QUEUED:
            return self
        figures = _measured(verification) or self.figures
        checked = verification.summary or self.checked
        if verification.state is VerificationState.FAILED:
            return replace(self, state=CellState.REFUSED, verified=False, checked=checked, figures=figures)
        return replace(self, checked=checked, figures=figures)

    def is_measured_by(self, pool: Pool) -> bool:
        """Whether a worker of the pool is to measure the artifact, or has."""
        every = self.verifications.get("")
        is_its_own = every is not None and every.result.get("pool", pool.name) == pool.name
        return pool.name in self.verifications or is_its_own

    def is_to_be_measured_by(self, pool: Pool) -> bool:
        """Whether a worker of the pool has not ended that yet."""
        return any(not each.state.is_final for name, each in self.verifications.items() if name in ("", pool.name))


def cell(
    wanted: Sequence[Build],
    builds: Builds,
    verifications: VerificationStore,
    layout: OciLayout,
    held: Collection[Digest],
    of: tuple[str, int],
    target: str,
) -> Cell:
    """How the version `of` a model stands for a target. Blocks.

    Builds of other batch sizes and of larger shapes are parts of the model, and no answers of their own.

    Args:
        wanted: the builds that the model wants, what was asked for last first.
        held: the artifacts in quarantine.
    """
    answering = next((build for build, _ in candidates(builds, [target], *of, lambda artifact: True)), None)
    if answering is not None and answering.artifact is not None:
        return _built(answering, answering.artifact, layout, held, verifications.of_pools(answering.artifact))
    for build in wanted:
        is_it = (build.model, build.version) == of and build.target == target
        if is_it and batch_of(build.options) == 1 and place_of(build.options) == 0:
            if build.artifact and not build.invalidated and (found := verifications.of_pools(build.artifact)):
                return _built(build, build.artifact, layout, held, found)
            return Cell(_UNFINISHED.get(build.state, CellState.NONE), build)
    return Cell(CellState.NONE)


def targets_of(wanted: Iterable[Build], of: tuple[str, int]) -> list[str]:
    """The targets that a version of a model has, or shall have, builds for; the best first."""
    found = {build.target for build in wanted if (build.model, build.version) == of}
    return sorted(found, key=lambda target: list(_DEVICES).index(target) if target in _DEVICES else len(_DEVICES))


def cost_per_million(price_per_hour: float, figures: Figures, pool: Pool) -> float | None:
    """What a million predictions cost on a pool, in the currency of the price; None where no time was measured.

        price per hour / 3600 / calls per second * 10^6 / calls that one worker computes at a time

    Calls per second are those of one after the other; where these were not counted, 1 / p50.
    The price is of one worker. At a time it computes `capacity / workers` calls of one thread, or as many fewer as a
    call was measured on more threads, and at least one; a card computes one. So it is the cost of workers that are
    busy all the time, whose calls do not slow each other down: no bill is lower.
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
    held: Collection[Digest],
    verifications: Mapping[str, Verification],
) -> Cell:
    numerics, by_worker = _report(layout, artifact, Report.NUMERICS), verifications.get("")
    is_passed = by_worker is not None and by_worker.state is VerificationState.PASSED
    verified = numerics.get("verified") is True or (is_passed and numerics.get("outcome") != Outcome.DIFFERENT)
    state = CellState.READY if verified or may_serve(numerics) else CellState.UNVERIFIED
    if is_different(numerics):
        state = CellState.DIFFERENT
    if artifact in held:
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


def _measured(verification: Verification) -> Figures | None:
    """None where it measured nothing."""
    result = verification.result
    if "p50_s" not in result:
        return None
    return Figures(**{each.name: result.get(each.name) for each in fields(Figures)})


def _figures(layout: OciLayout, artifact: Digest) -> Figures:
    """Nothing of what the reports do not say, or not as builds write them."""
    profile = _report(layout, artifact, Report.PROFILE)
    try:
        machine, threads = str(profile["machine"]), int(profile["threads"])
        p50_s = float(profile["model_seconds"])
    except _DAMAGED:
        return Figures()
    try:
        explanation = explained(_report(layout, artifact, Report.COVERAGE), profile)
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
    """Empty where there is none, or where it is damaged: who serves the artifact says so."""
    try:
        attached = layout.attached(artifact, kind)
        found = None if attached is None else json.loads(attached)
    except (CorruptBlob, NotFound, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
