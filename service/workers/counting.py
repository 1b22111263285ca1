"""Builds that count the values of a served model, and the reasons why some models have none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

from service.cache import OciLayout
from service.compiler.lowering import toolchain
from service.compiler.sandbox.policy import Limits, unlimited
from service.core.artifacts.artifact import Report
from service.core.builds.build import Build, BuildInputs
from service.core.builds.options import with_counts
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound, NotReady, OctetError, Unsupported
from service.core.models.facts import Facts
from service.core.models.ranges import Counts, StoredRange
from service.core.models.signature import ModelSignature
from service.core.settings import Settings
from service.core.target import parse_target
from service.db import BuildStore, ModelStore
from service.workers.inference.artifacts import StoredArtifacts
from service.workers.inference.identity import Identity

if TYPE_CHECKING:
    from service.compiler.children.locked import LockedArtifact

_LOWEST = 19  # the niceness of the processes that count
_CPU_S, _WALL_S = 300.0, 1800.0


@dataclass(frozen=True)
class CountingArtifact:
    """An artifact that counts values, and the ranges of the tensors that it counts."""

    locked: LockedArtifact
    ranges: tuple[StoredRange, ...]

    @property
    def digest(self) -> Digest:
        return self.locked.digest

    @property
    def signature(self) -> ModelSignature:
        return self.locked.signature

    def count(self, samples: Sequence[bytes], poll: Callable[[], None]) -> list[Counts]:
        """Runs the artifact in a sandboxed child (`LockedArtifact.count`). Returns the counts of each range."""
        return self.locked.count(samples, len(self.ranges), poll)


@dataclass(frozen=True)
class CountingBuilds:
    """The builds that count values, in the tables and the store."""

    settings: Settings
    layout: OciLayout
    builds: BuildStore
    models: ModelStore
    artifacts: StoredArtifacts

    def find(self, its: Identity) -> Build | None:
        """Returns the latest build that counts the values of a served model, in any state."""
        found = self.builds.counting(its.model, its.version)
        return next((each for each in found if (each.target, each.numerics) == (its.target, its.numerics)), None)

    def request(self, its: Identity) -> Build:
        """Requests the build that counts the values of a served model.

        Raises:
            Unsupported: the values of the model cannot be counted, or this process has no compiler.
            NotFound: the version has been deleted.
        """
        serving = self.builds.serving(its.model, its.version, [its.target])
        served = next((each for each in serving if each.artifact == its.artifact), None)
        if served is None:
            raise NotFound(f"{its.model} version {its.version} is no longer served from artifact {its.artifact}")
        check_countable(self.layout, served)
        inputs = _inputs_of(served)
        found = self.find(its)
        if found is not None and found.key == inputs.key and found.state.is_final and found.artifact is None:
            raise Unsupported(f"build {found.id}, which counts, {found.state}: {(found.error or {}).get('message')}")
        build, _ = self.builds.submit(inputs, its.model, its.version)
        try:
            self.models.version(its.model, its.version)
        except NotFound:
            self.builds.withdraw(its.model, its.version)
            raise
        return build

    def open(self, artifact: Digest) -> CountingArtifact:
        """Reads an artifact that counts.

        Raises:
            NotReady: the artifact has not been verified.
            Unsupported: it cannot be used.
        """
        from service.compiler.children.locked import LockedArtifact  # imports NumPy, which only counting needs

        try:
            self.artifacts.check(artifact)
            locked = LockedArtifact.read(self.layout, artifact, self.settings, limits=_limits(self.settings))
            return CountingArtifact(locked, read_ranges(self.layout, artifact))
        except NotReady:
            raise
        except OctetError as error:
            raise Unsupported(f"artifact {artifact} cannot be used: {error}") from error


def check_countable(layout: OciLayout, served: Build) -> None:
    """Checks that the values of a served build can be counted.

    Raises:
        Unsupported: they cannot.
    """
    if parse_target(served.target).device != "cpu":
        raise Unsupported("values are counted only on CPUs")
    if with_counts(served.options) is None:
        raise Unsupported("the values of models for several shapes are not counted")
    facts = _facts_of(layout, served)
    if facts is None or facts.activations is None:
        raise Unsupported("the model has no activations with fixed ranges")
    if facts.signature.states:
        raise Unsupported("the values of models that keep state between calls are not counted")
    try:
        layout.blobs.size_bytes(served.source)
    except (CorruptBlob, NotFound) as error:
        raise Unsupported("the store does not have the model's file") from error


def _facts_of(layout: OciLayout, served: Build) -> Facts | None:
    report = None if served.artifact is None else layout.attached(served.artifact, Report.FACTS)
    return None if report is None else Facts.from_json(json.loads(report))


def _inputs_of(served: Build) -> BuildInputs:
    """Returns the inputs of the build that counts the values of a served build."""
    options = with_counts(served.options)
    assert options is not None  # `check_countable` has checked it
    try:
        return toolchain.build_inputs(served.source, parse_target(served.target), served.numerics, options)
    except PackageNotFoundError as error:
        raise Unsupported(f"this process has no compiler: {error.name} is not installed") from error


def read_ranges(layout: OciLayout, artifact: Digest) -> tuple[StoredRange, ...]:
    """Returns the ranges of the tensors that an artifact counts.

    Raises:
        NotFound: the artifact does not count values, or its report is malformed.
    """
    try:
        report = json.loads(layout.attached(artifact, Report.RANGES) or b"[]")
        ranges = tuple(StoredRange.from_json(each) for each in report)
    except (LookupError, TypeError, ValueError) as error:
        raise NotFound(f"the report on the ranges of artifact {artifact} is malformed") from error
    if not ranges:
        raise NotFound(f"artifact {artifact} does not count values")
    return ranges


def _limits(settings: Settings) -> Limits:
    high = replace(unlimited(0), places_threads=False, threads=64)
    memory = settings.build_memory_limit_bytes
    return replace(high, wall_s=_WALL_S, cpu_s=_CPU_S, memory_bytes=memory, nice=_LOWEST)
