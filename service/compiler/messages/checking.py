"""Requests and results of the roles that compute expected outputs, and verify and time artifacts (`children.roles`,
`children.checking_roles`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler.messages.message import Count, Message, Seconds
from service.compiler.messages.role import Role
from service.core.artifacts.artifact import ArtifactConfig
from service.core.artifacts.explanation import Call
from service.core.models.signature import ModelSignature
from service.core.verification.agreement import Comparison


@dataclass(frozen=True)
class OracleRequest(Message):
    """A request to compute the outputs of an imported module with the oracle.

    Attributes:
        module: the file of the imported module.
        batch: the number of inputs in each sample.
        probes: the number of inputs that the oracle must choose.
        samples: the number of generated samples.
    """

    module: Path
    batch: int
    probes: int
    numerics: str
    signature: ModelSignature
    samples: int


@dataclass(frozen=True)
class OracleResult(Message):
    """The special cases that the operators met in all inputs (`probing.Observer.report`)."""

    reached: Mapping[str, Any]


@dataclass(frozen=True)
class ReferenceRequest(Message):
    """A request to run a model file in its framework's own runtime.

    Attributes:
        source: the model file, in the format `format`.
        probes: the file with the inputs that the oracle chose, or None if it chose none.
        samples: the number of generated samples.
    """

    source: Path
    format: str
    probes: Path | None
    numerics: str
    signature: ModelSignature
    samples: int


@dataclass(frozen=True)
class SessionResult(Message):
    """The result of one session of the reference runtime.

    Attributes:
        error: the reason why the session could not load the model. The other members are then missing.
        refused: maps the number of each input that the session rejected to its error message. The inputs that the
            oracle chose are numbered after the others.
        answered: the number of inputs whose outputs were written.
    """

    error: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    answered: Count = 0


@dataclass(frozen=True)
class ReferenceResult(Message):
    """The digest of the file that was read, and the results of the reference's sessions, in order."""

    source: str
    sessions: tuple[SessionResult, ...]


@dataclass(frozen=True)
class PaddingRequest(Message):
    """A request to compare modules of one model for several input lengths; see `build.padding`.

    Attributes:
        module, signature: the module of the longest inputs.
        modules, signatures: the modules and signatures of the shorter inputs.
        can_bind: true if the target supports a length that is bound when the model is called.
    """

    module: Path
    signature: ModelSignature
    modules: tuple[Path, ...]
    signatures: tuple[ModelSignature, ...]
    numerics: str
    can_bind: bool


@dataclass(frozen=True)
class PaddingResult(Message):
    """The result of comparing padded inputs with unpadded ones.

    Attributes:
        values: the number of output values.
        equal: the number of these values that are equal for padded and unpadded inputs.
        reason: the reason why nothing was compared, or "".
        bound: true if the length is bound when the model is called. `MODULE_FILE` then contains the module to build.
    """

    values: Count
    equal: Count
    reason: str
    bound: bool = False


@dataclass(frozen=True)
class ArtifactFiles(Message):
    """The files of a linked artifact, for a child that loads it."""

    config: ArtifactConfig
    library: Path
    constants: Path

    @property
    def signature(self) -> ModelSignature:
        return self.config.signature

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.library, self.constants


@dataclass(frozen=True)
class Shorter(Message):
    """The expected outputs of an artifact for inputs that are shorter than those that it is built for.

    Attributes:
        length: their length.
        signature: the signature of a model of this length.
        outputs: the file with its outputs for the first of `masked_samples`.
    """

    length: Count
    signature: ModelSignature
    outputs: Path


@dataclass(frozen=True)
class VerifyRequest(ArtifactFiles):
    """A request to compare an artifact's outputs with expected outputs.

    Attributes:
        vectors: the files with the expected outputs of each witness.
        probes: the files with their outputs for the inputs that the oracle chose. The first file contains these inputs.
        shorter: the outputs for shorter inputs.
    """

    vectors: tuple[Path, ...]
    probes: tuple[Path, ...]
    shorter: tuple[Shorter, ...] = ()


@dataclass(frozen=True)
class VerifyResult(Message):
    """The result of comparing the artifact's outputs with each file of expected outputs.

    Attributes:
        different: the lengths of shorter inputs for which an output value differs.
    """

    comparisons: tuple[Comparison, ...]
    different: tuple[int, ...] = ()


@dataclass(frozen=True)
class ProfileRequest(ArtifactFiles):
    """A request to time the calls of an artifact on one thread.

    Attributes:
        peak: the description of the peak loop in the coverage report, or None if the artifact has none.
        seconds: the approximate duration of the measurement.
    """

    peak: Mapping[str, Any] | None
    seconds: float


@dataclass(frozen=True)
class ProfileResult(Message):
    """The JSON form of `runtime.profile.Profile`."""

    machine: str
    threads: Count
    rounds: Count
    model_seconds: Seconds
    least_model_seconds: Seconds
    peak_macs_per_s: Seconds | None
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class SpeedRequest(Message):
    """A request to time several artifacts of one model alternately, for about `seconds`."""

    models: tuple[ArtifactFiles, ...]
    seconds: float


@dataclass(frozen=True)
class TimeResult(Message):
    """For each artifact, a mapping from the symbol of a kernel to its time."""

    seconds: tuple[Mapping[str, Seconds], ...]


@dataclass(frozen=True)
class RaceResult(Message):
    """The JSON form of `runtime.racing.Race`."""

    rounds: Count
    first_s: Seconds
    second_s: Seconds
    times_as_fast: Seconds


ORACLE = Role("oracle", OracleRequest, OracleResult)
REFERENCE = Role("reference", ReferenceRequest, ReferenceResult)
PADDING = Role("padding", PaddingRequest, PaddingResult)
VERIFY = Role("verify", VerifyRequest, VerifyResult)
PROFILE = Role("profile", ProfileRequest, ProfileResult)
TIME = Role("time", SpeedRequest, TimeResult)
RACE = Role("race", SpeedRequest, RaceResult)
