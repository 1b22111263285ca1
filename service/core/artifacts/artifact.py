"""The artifact: the contract between the compiler, which writes it, and the runtime, which reads it.

An artifact is an OCI manifest: this module's config, a library layer and a constants layer. The digest of the manifest
identifies the artifact, so nothing here may vary between two builds of the same inputs (no times, no host names).
Reports about an artifact are referrers of it: see `Report`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from service.core.artifacts.call_plan import CallPlan
from service.core.artifacts.compatibility import ABI_VERSION, check_versions
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound
from service.core.models.signature import ModelSignature
from service.core.target import parse_target

ARTIFACT_TYPE = "application/vnd.octet.artifact.v1"
LIBRARY_MEDIA_TYPE = "application/vnd.octet.library.v1"
CONSTANTS_MEDIA_TYPE = "application/vnd.octet.constants.v1"
SOURCE_MEDIA_TYPE = "application/vnd.octet.model.source.v1"
METADATA_MEDIA_TYPE = (
    "application/vnd.octet.metadata.v1+json"  # the metadata of a model version; see `core.models.metadata`
)
TOKENIZER_MEDIA_TYPE = "application/vnd.octet.tokenizer.v1+json"  # see `core.models.text`

ARCHIVE_FORMAT = "artifact"  # the format of a model version that was pushed as a tar archive of an artifact

# Annotations of an artifact's manifest. These annotations are part of the artifact's identity.
SOURCE_ANNOTATION = "dev.octet.source"  # digest of the model file
TARGET_ANNOTATION = "dev.octet.target"
NUMERICS_ANNOTATION = "dev.octet.numerics"
OPTIONS_ANNOTATION = "dev.octet.options"  # canonical JSON; absent without options
FORMAT_ANNOTATION = "dev.octet.format"  # format of the model file; also on the manifest of a source
# Annotations of entries in the store's index, from which a lost database is rebuilt. These annotations may change at
# any time.
BUILD_KEY_ANNOTATION = "dev.octet.build-key"
# Followed by NAME:VERSION. Marks the index entry of a model file or artifact as used by that version. The value is the
# time at which the version requested it.
_MODEL_ANNOTATION = "dev.octet.model."


def model_annotation(name: str, version: int, asked_at: datetime) -> dict[str, str]:
    """Returns the annotation which records that a model version uses an index entry. There is one for each version."""
    return {model_annotation_name(name, version): asked_at.astimezone(UTC).isoformat()}


def model_annotation_name(name: str, version: int) -> str:
    """Returns the name of the annotation that `model_annotation` returns."""
    return f"{_MODEL_ANNOTATION}{name}:{version}"


def models_in(annotations: Mapping[str, str]) -> list[tuple[str, int, datetime]]:
    """Parses the results of `model_annotation`: name, version and time of each request, the earliest first.

    Raises:
        ValueError: the name or the value of such an annotation is malformed.
    """
    found = []
    for annotation, value in annotations.items():
        if annotation.startswith(_MODEL_ANNOTATION):
            name, _, version = annotation.removeprefix(_MODEL_ANNOTATION).rpartition(":")
            found.append((name, int(version), datetime.fromisoformat(value)))
    return sorted(found, key=lambda entry: entry[2])


def only_artifact(listed: Iterable[tuple[Digest, str | None]]) -> Digest:
    """Returns the one artifact of an index, which lists digests and artifact types.

    Raises:
        NotFound: the index lists no artifact, or several.
    """
    found = [digest for digest, artifact_type in listed if artifact_type == ARTIFACT_TYPE]
    if len(found) != 1:
        raise NotFound(f"the folder holds {len(found)} artifacts", hint="name one by its digest")
    return found[0]


class Report(StrEnum):
    """The types of reports that can be attached to an artifact.

    The name in lower case is the last part of the report's URL; the value is the OCI artifact type.
    """

    NUMERICS = "application/vnd.octet.numerics.v1+json"  # see `core.verification.witnesses`
    COVERAGE = "application/vnd.octet.coverage.v1+json"  # states which multiply-accumulates run in integers
    VECTORS = "application/vnd.octet.vectors.v3+npz"  # expected outputs on generated inputs, for `runtime.verify`
    PROBES = "application/vnd.octet.probes.v1+npz"  # inputs that the oracle chose, and expected outputs; may be missing
    PROFILE = "application/vnd.octet.profile.v1+json"  # the time of each call, and the machine that measured it
    FACTS = "application/vnd.octet.facts.v1+json"  # a description of the source model; see `core.models.facts`
    RANGES = "application/vnd.octet.ranges.v1+json"  # what a counting artifact counts; see `core.models.ranges`
    SCORE = "application/vnd.octet.score.v1+json"  # the score on a data set, signed; see `core.provenance.score`
    PROVENANCE = "application/vnd.in-toto+json"  # who built the artifact, and from which inputs; see `core.provenance`


# The reports that are pushed together with an artifact. Reports with measurements are not pushed, because the server
# that receives the artifact measures it again. Of a numerics report that came with the artifact, the server uses only a
# difference from the reference.
TRAVELING = (Report.NUMERICS, Report.COVERAGE, Report.VECTORS, Report.PROBES, Report.FACTS, Report.PROVENANCE)
# The reports that a registry stores, with the tokenizer of the version. A score does not travel in archives, because
# archives of equal artifacts must be equal: `octet push` sends it to the server by a request of its own. The same holds
# for a tokenizer.
PUBLISHED = (*TRAVELING, Report.SCORE, TOKENIZER_MEDIA_TYPE)


@dataclass(frozen=True)
class Slot:
    """The location of a tensor in the constants layer or the arena: little-endian, C order, 64-byte aligned."""

    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int

    def __post_init__(self) -> None:
        if self.offset_bytes < 0 or min(self.shape, default=0) < 0:
            raise CorruptBlob(f"a tensor of shape {list(self.shape)} cannot be at offset {self.offset_bytes}")

    @property
    def end_bytes(self) -> int:
        import numpy as np  # imported here, because only the compiler calls this function

        return self.offset_bytes + math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "offset_bytes": self.offset_bytes}

    @staticmethod
    def from_json(slot: Mapping[str, Any]) -> Slot:
        return Slot(slot["dtype"], tuple(slot["shape"]), slot["offset_bytes"])


@dataclass(frozen=True)
class ArtifactConfig:
    """The facts that the runtime needs to load an artifact.

    Attributes:
        signature: the model's inputs, outputs and states.
        target: the canonical name of the target.
        numerics: the numerics mode, which names the reference runtime.
        plan: the calls of the library's functions, and their buffers.
    """

    signature: ModelSignature
    target: str
    numerics: str
    plan: CallPlan

    def to_json(self) -> dict[str, Any]:
        return {
            "abi_version": ABI_VERSION,
            "signature": self.signature.to_json(),
            "target": self.target,
            "numerics": self.numerics,
            "plan": self.plan.to_json(),
            "requires": sorted(parse_target(self.target).features),
        }

    @staticmethod
    def from_json(config: Mapping[str, Any]) -> ArtifactConfig:
        """Parses the result of `to_json`.

        Raises:
            CorruptBlob: the plan is damaged.
            Unsupported: the config was written by an incompatible release.
        """
        check_versions(config)
        return ArtifactConfig(
            ModelSignature.from_json(config["signature"]),
            config["target"],
            config["numerics"],
            CallPlan.from_json(config["plan"]),
        )
