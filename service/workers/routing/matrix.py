"""What each pool of a cluster has of a version of a model: its build, how that was checked, and its figures."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from service.cache import OciLayout
from service.core.artifact import Report
from service.core.build import Build, BuildState
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound, Unsupported
from service.core.explanation import explained
from service.core.options import batch_of, place_of
from service.core.target import TARGETS, Device
from service.workers.inference.candidates import candidates
from service.workers.inference.ports import Builds

_S_PER_HOUR, _PER_MILLION = 3600.0, 1e6
_DEVICES: Mapping[str, Device] = {target.name: target.device for target in TARGETS}
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, Unsupported)


class CellState(StrEnum):
    """How a version of a model stands for a target."""

    READY = "ready"  # it is built and verified
    UNVERIFIED = "unverified"  # it is built, and nothing of the target has verified it: it is not served
    QUARANTINED = "quarantined"  # it crashed servers too often
    QUEUED = "queued"
    BUILDING = "building"
    FAILED = "failed"
    CANCELED = "canceled"
    NONE = "none"  # no build was asked for, or what was built is lost


_UNFINISHED = {
    BuildState.QUEUED: CellState.QUEUED,
    BuildState.RUNNING: CellState.BUILDING,
    BuildState.FAILED: CellState.FAILED,
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
        peak_percent: of what the machine multiplies at most with the target's instructions, the rate of its kernels.
    """

    machine: str | None = None
    threads: int | None = None
    p50_s: float | None = None
    peak_percent: float | None = None


@dataclass(frozen=True)
class Cell:
    """What there is for a target.

    Attributes:
        build: the one that answers; where none does, the one that was asked for last.
        verified: whether every value equalled the canonical form's; None without an artifact.
        checked: against what, in a sentence; empty where no report says it.
        memory_bytes: of the code, the constants and what one call computes in; None where the artifact does not say.
    """

    state: CellState
    build: Build | None = None
    verified: bool | None = None
    checked: str = ""
    figures: Figures = Figures()
    memory_bytes: int | None = None


def cell(
    wanted: Sequence[Build],
    builds: Builds,
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
        return _built(answering, answering.artifact, layout, held)
    for build in wanted:
        is_it = (build.model, build.version) == of and build.target == target
        if is_it and batch_of(build.options) == 1 and place_of(build.options) == 0:
            return Cell(_UNFINISHED.get(build.state, CellState.NONE), build)
    return Cell(CellState.NONE)


def targets_of(wanted: Iterable[Build], of: tuple[str, int]) -> list[str]:
    """The targets that a version of a model has, or shall have, builds for; the best first."""
    found = {build.target for build in wanted if (build.model, build.version) == of}
    return sorted(found, key=lambda target: list(_DEVICES).index(target) if target in _DEVICES else len(_DEVICES))


def cost_per_million(price_per_hour: float, figures: Figures, pool: Pool) -> float | None:
    """What a million predictions cost on a pool, in the currency of the price; None where no time was measured.

        price per hour / 3600 * p50 seconds * 10^6 / calls that one worker computes at a time

    The price is of one worker. At a time it computes `capacity / workers` calls of one thread, or as many fewer as a
    call was measured on more threads, and at least one; a card computes one. So it is the cost of workers that are
    busy all the time, whose calls do not slow each other down: no bill is lower.
    """
    if figures.p50_s is None or not pool.workers:
        return None
    at_once = max(1.0, pool.capacity / pool.workers / max(1, figures.threads or 1))
    if _DEVICES.get(pool.target) == "cuda":
        at_once = 1.0
    return price_per_hour / _S_PER_HOUR * figures.p50_s * _PER_MILLION / at_once


def _built(build: Build, artifact: Digest, layout: OciLayout, held: Collection[Digest]) -> Cell:
    numerics = _report(layout, artifact, Report.NUMERICS)
    verified = numerics.get("verified") is True
    state = CellState.READY if verified else CellState.UNVERIFIED
    if artifact in held:
        state = CellState.QUARANTINED
    summary = numerics.get("summary")
    figures, memory_bytes = _figures(layout, artifact), _memory_bytes(layout, artifact)
    return Cell(state, build, verified, summary if isinstance(summary, str) else "", figures, memory_bytes)


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
    return Figures(machine, threads, p50_s, peak_percent)


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
