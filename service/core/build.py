"""A build: one question ("this model, for this target, in this numerics mode") and how far its answer is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from service.core.digest import Digest, digest_of_json
from service.core.options import batch_of, place_of, tune_s_of
from service.core.quantization import is_quantization


class BuildState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DIFFERENT = "different"  # it has an artifact that differs from its reference runtime, which is not served
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        return self not in (BuildState.QUEUED, BuildState.RUNNING)

    @property
    def has_artifact(self) -> bool:
        """True if the build has ended with an artifact, served or not."""
        return self in (BuildState.SUCCEEDED, BuildState.DIFFERENT)


class Stage(StrEnum):
    """The stages of a running build, in order; those of a quantization come between the first and `PUBLISH`."""

    FETCH = "fetch"
    IMPORT = "import"
    SELECT = "select"
    LEGALIZE = "legalize"
    CANONICALIZE = "canonicalize"
    CODEGEN = "codegen"
    LINK = "link"
    VERIFY = "verify"
    PUBLISH = "publish"
    TUNE = "tune"  # the one stage of builds in the background that try what is faster
    CALIBRATE = "calibrate"  # the float model runs on the inputs
    RANK = "rank"  # it runs with each layer alone in integers, and with some of them
    MEASURE = "measure"  # both models run on the inputs


@dataclass(frozen=True)
class BuildInputs:
    """Everything that decides a build's result. Two builds with equal keys are the same build.

    Attributes:
        source: digest of the model file.
        target: canonical target name, never "host".
        numerics: numerics mode.
        toolchain: versions and source digests of everything that takes part, from
            `compiler.lowering.toolchain.fingerprint`.
        options: what else the user asked for.
        tenant: whose builds it is among: tenants that ask the same have builds of their own.
    """

    source: Digest
    target: str
    numerics: str
    toolchain: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    tenant: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "numerics": self.numerics,
            "toolchain": dict(self.toolchain),
            "options": dict(self.options),
            **({"tenant": self.tenant} if self.tenant else {}),
        }

    @property
    def background(self) -> bool:
        """Whether it makes better what is served without it too: it is built when nothing else waits."""
        makes_better = batch_of(self.options) > 1 or place_of(self.options) > 0 or tune_s_of(self.options) is not None
        return makes_better or is_quantization(self.options)

    @property
    def key(self) -> Digest:
        return digest_of_json(self.to_json())


@dataclass(frozen=True)
class Build:
    """A row of the builds table, as the rest of the program sees it. Times are UTC."""

    id: str
    key: Digest
    model: str
    version: int
    source: Digest
    target: str
    numerics: str
    state: BuildState
    created_at: datetime
    stage: Stage | None = None
    progress: float = 0.0
    artifact: Digest | None = None
    error: Mapping[str, Any] | None = None  # OctetError.to_json()
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    cancel_requested: bool = False
    invalidated: bool = False  # its artifact was lost or damaged: it answers no question any more
    options: Mapping[str, Any] = field(default_factory=dict)  # see `core.options`


@dataclass(frozen=True)
class BuildEvent:
    """One line of a build's history; `sequence` grows by one per build and is the id of the server-sent event."""

    sequence: int
    at: datetime
    kind: str  # state | stage | progress | log
    data: Mapping[str, Any]


class Progress(Protocol):
    """Progress reports of a running compile, and its cancellation."""

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        """The compile is `fraction` (0 to 1) through `stage`. Raises `BuildCanceled` if it should stop."""

    def log(self, line: str) -> None: ...


class BuildCanceled(Exception):
    """Raised by `Progress.stage` when the build was canceled or its lease was lost; not an error of the build."""


class LeaseLost(BuildCanceled):
    """Another worker has the build by now, or it is over: stop, and report nothing."""
