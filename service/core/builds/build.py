"""Builds: the compilation or quantization of one model for one target in one numerics mode, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from service.core.builds.options import batch_of, bucket_index_of, counts_values, tune_s_of
from service.core.builds.quantization import is_quantization
from service.core.digest import Digest, digest_of_json


class BuildState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DIFFERENT = "different"  # the build has an artifact, but the artifact differs from its reference and is not served
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
    """The stages of a running build. The stages of a compilation are in order, from `FETCH` to `PUBLISH`.

    A quantization runs `FETCH`, its own stages at the end of the list, and `PUBLISH`.
    """

    FETCH = "fetch"
    IMPORT = "import"
    SELECT = "select"
    LEGALIZE = "legalize"
    CANONICALIZE = "canonicalize"
    CODEGEN = "codegen"
    LINK = "link"
    VERIFY = "verify"
    PUBLISH = "publish"
    TUNE = "tune"  # the only stage of a build that searches for faster tile sizes
    CALIBRATE = "calibrate"  # a quantization runs the float model on the calibration inputs
    RANK = "rank"  # a quantization runs the model with each layer alone in integers, and with some of them
    MEASURE = "measure"  # a quantization runs the float and the quantized model on the inputs


@dataclass(frozen=True)
class BuildInputs:
    """Everything that decides a build's result. Two builds with equal keys are the same build.

    Attributes:
        source: the digest of the model file.
        target: the canonical name of the target, never "host".
        numerics: the numerics mode.
        toolchain: versions and source digests of all tools (`compiler.lowering.toolchain.fingerprint`).
        options: the other options of the request, see `core.builds.options`.
        tenant: the tenant that the build belongs to. Tenants that request the same model have separate builds.
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
        """True if the model can be served without this build, or the build quantizes or counts values. Such a build
        runs only while no other build waits.
        """
        makes_better = (
            batch_of(self.options) > 1 or bucket_index_of(self.options) > 0 or tune_s_of(self.options) is not None
        )
        return makes_better or is_quantization(self.options) or counts_values(self.options)

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
    invalidated: bool = False  # the artifact was lost or damaged, so the build cannot be reused any more
    options: Mapping[str, Any] = field(default_factory=dict)  # see `core.builds.options`


@dataclass(frozen=True)
class BuildEvent:
    """One entry of a build's history. `sequence` counts the build's events, and is the id of the server-sent event."""

    sequence: int
    at: datetime
    kind: str  # state | stage | progress | log
    data: Mapping[str, Any]


class Progress(Protocol):
    """The interface through which a running build reports its progress and learns that it was canceled."""

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        """Reports that `fraction` (0 to 1) of `stage` is done.

        Raises:
            BuildCanceled: the build should stop.
        """

    def log(self, line: str) -> None: ...


class BuildCanceled(Exception):
    """Raised by `Progress.stage` when the build was canceled or its lease was lost. This exception is not an error of
    the build.
    """


class LeaseLost(BuildCanceled):
    """Another worker has taken over the build, or the build has ended. The worker must stop and report nothing more."""
