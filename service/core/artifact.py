"""The artifact: the contract between the compiler, which writes it, and the runtime, which reads it.

An artifact is an OCI manifest: this module's config, a library layer and a constants layer. Its digest is its
identity, so nothing here may vary between two builds of the same inputs (no times, no host names). Reports about
an artifact are referrers of it: see `Report`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from service.core.call_plan import CallPlan
from service.core.compatibility import ABI_VERSION, check_versions
from service.core.digest import Digest
from service.core.errors import CorruptBlob, NotFound
from service.core.signature import ModelSignature
from service.core.target import parse_target

ARTIFACT_TYPE = "application/vnd.octet.artifact.v1"
LIBRARY_MEDIA_TYPE = "application/vnd.octet.library.v1"
CONSTANTS_MEDIA_TYPE = "application/vnd.octet.constants.v1"
SOURCE_MEDIA_TYPE = "application/vnd.octet.model.source.v1"
METADATA_MEDIA_TYPE = "application/vnd.octet.metadata.v1+json"  # of a version; see `core.metadata`

ARCHIVE_FORMAT = "artifact"  # of a model version that was pushed as an artifact, in a tar archive

# Annotations of an artifact's manifest: they are part of its identity.
SOURCE_ANNOTATION = "dev.octet.source"  # digest of the model file
TARGET_ANNOTATION = "dev.octet.target"
NUMERICS_ANNOTATION = "dev.octet.numerics"
OPTIONS_ANNOTATION = "dev.octet.options"  # canonical JSON; missing where there are none
FORMAT_ANNOTATION = "dev.octet.format"  # of the model file; on a source's manifest too
# Annotations of entries in the store's index: what a lost database is rebuilt from. They may change at any time.
BUILD_KEY_ANNOTATION = "dev.octet.build-key"
_MODEL_ANNOTATION = "dev.octet.model."  # + name:version, on sources and artifacts; the time of the request


def model_annotation(name: str, version: int, asked_at: datetime) -> dict[str, str]:
    """An annotation of an index entry: a model version uses what the entry names. Each such version has one."""
    return {model_annotation_name(name, version): asked_at.astimezone(UTC).isoformat()}


def model_annotation_name(name: str, version: int) -> str:
    """The name of the annotation of `model_annotation`."""
    return f"{_MODEL_ANNOTATION}{name}:{version}"


def models_in(annotations: Mapping[str, str]) -> list[tuple[str, int, datetime]]:
    """Parses the result of `model_annotation`: name, version and time of each request, the earliest first.

    Raises:
        ValueError: an annotation of that name holds something else.
    """
    found = []
    for annotation, value in annotations.items():
        if annotation.startswith(_MODEL_ANNOTATION):
            name, _, version = annotation.removeprefix(_MODEL_ANNOTATION).rpartition(":")
            found.append((name, int(version), datetime.fromisoformat(value)))
    return sorted(found, key=lambda asked: asked[2])


def only_artifact(listed: Iterable[tuple[Digest, str | None]]) -> Digest:
    """The artifact that an index lists by digest and type. Raises `NotFound`, where there is none, or several."""
    found = [digest for digest, artifact_type in listed if artifact_type == ARTIFACT_TYPE]
    if len(found) != 1:
        raise NotFound(f"the folder holds {len(found)} artifacts", hint="name one by its digest")
    return found[0]


class Report(StrEnum):
    """Kinds of reports that can be attached to an artifact, by the last part of their URL; the value is the OCI
    artifact type.
    """

    NUMERICS = "application/vnd.octet.numerics.v1+json"  # what the outputs were compared with; see `core.witnesses`
    COVERAGE = "application/vnd.octet.coverage.v1+json"  # which multiply-accumulates run in integers, and why not
    VECTORS = "application/vnd.octet.vectors.v3+npz"  # expected outputs on generated inputs, for `runtime.verify`
    PROBES = "application/vnd.octet.probes.v1+npz"  # inputs that the oracle chose, and expected outputs; may be missing
    PROFILE = "application/vnd.octet.profile.v1+json"  # how long each call took, on the machine that it names
    FACTS = "application/vnd.octet.facts.v1+json"  # what the source model is; see `core.facts`
    PROVENANCE = "application/vnd.in-toto+json"  # who built it from what; see `core.provenance`


# What travels with an artifact that is pushed: what is known of its model. What was found out by running it is found
# out again where it arrives; of its numerics report only a difference from the reference counts there.
TRAVELING = (Report.NUMERICS, Report.COVERAGE, Report.VECTORS, Report.PROBES, Report.FACTS, Report.PROVENANCE)


@dataclass(frozen=True)
class Slot:
    """One tensor in the constants layer or the arena: little-endian, C order, at a 64-byte aligned offset."""

    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int

    def __post_init__(self) -> None:
        if self.offset_bytes < 0 or min(self.shape, default=0) < 0:
            raise CorruptBlob(f"a tensor of shape {list(self.shape)} cannot lie at offset {self.offset_bytes}")

    @property
    def end_bytes(self) -> int:
        import numpy as np  # the compiler's

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
        signature: the model's inputs and outputs, and what it keeps between calls.
        target: a canonical target name.
        numerics: the numerics mode, which names the reference runtime.
        plan: what the library's functions are called with.
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
        """
        Raises:
            CorruptBlob: the plan is damaged.
            Unsupported: it is of another release.
        """
        check_versions(config)
        return ArtifactConfig(
            ModelSignature.from_json(config["signature"]),
            config["target"],
            config["numerics"],
            CallPlan.from_json(config["plan"]),
        )
