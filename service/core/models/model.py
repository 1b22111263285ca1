"""A model: a name and a series of numbered versions, each of which is one file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from service.core.digest import Digest
from service.core.models.metadata import NOTHING, ModelMetadata

NAME_PATTERN = r"^([a-z0-9][a-z0-9-]{0,30}~)?[a-z0-9][a-z0-9._-]{0,62}$"  # before `~`: see core.access.tenant


def model_name_of(file: Path) -> str:
    """Derives a model's name from a file name: in lower case, with `-` for characters that a name cannot contain."""
    stem = file.stem.lower().removesuffix("-symbol")  # MXNet's suffix of a graph file
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:63] or "model"


class VersionState(StrEnum):
    """The state of a model version on this server. Only a `READY` version answers predictions."""

    READY = "ready"  # loaded, or loaded by the first request for it
    BUILDING = "building"
    FAILED = "failed"  # the build failed, or the artifact could not be loaded
    DIFFERENT = "different"  # built, but its outputs differ from those of its reference runtime
    CANCELED = "canceled"
    QUARANTINED = "quarantined"  # the server crashed too often while the version ran
    UNLOADED = "unloaded"  # unloaded by a request, until a request loads it again
    ELSEWHERE = "elsewhere"  # built only for targets that this machine cannot run
    NOT_BUILT = "not_built"


@dataclass(frozen=True)
class Deleted:
    """The result of deleting a model, or one version of it.

    Attributes:
        versions: the numbers of the deleted versions, in ascending order.
        aliases: aliases that named one of these versions, and were deleted with it.
        builds: the number of builds that no model version requests any more.
    """

    model: str
    versions: tuple[int, ...]
    aliases: tuple[str, ...] = ()
    builds: int = 0


@dataclass(frozen=True)
class ModelVersion:
    """One file that was pushed under a name. Pushing the same bytes under the same name again gives the same version.

    Attributes:
        number: the version number, counted from 1 for each name.
        source: the digest of the file.
        format: the format of the file, such as `tflite`.
        metadata: the metadata that was pushed with the file.
    """

    name: str
    number: int
    source: Digest
    format: str
    size_bytes: int
    created_at: datetime
    metadata: ModelMetadata = NOTHING
