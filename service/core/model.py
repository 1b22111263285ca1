"""A model, as a person names it: a row of versions, each one file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from service.core.digest import Digest
from service.core.metadata import NOTHING, ModelMetadata

NAME_PATTERN = r"^([a-z0-9][a-z0-9-]{0,30}~)?[a-z0-9][a-z0-9._-]{0,62}$"  # the first part says whose, see core.tenant


def name_of(file: Path) -> str:
    """A model's name from a file's: lower case, and `-` for what a name cannot hold."""
    stem = file.stem.lower().removesuffix("-symbol")  # as MXNet writes it
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:63] or "model"


class VersionState(StrEnum):
    """Whether a version of a model answers predictions on this server."""

    READY = "ready"  # it is loaded, or is with the first request for it
    BUILDING = "building"
    FAILED = "failed"  # to be built, or to be loaded
    DIFFERENT = "different"  # it was built, and differs from its reference runtime
    CANCELED = "canceled"
    QUARANTINED = "quarantined"  # the server crashed too often while it ran
    UNLOADED = "unloaded"  # by a request, until it is loaded again
    ELSEWHERE = "elsewhere"  # it is built for machines of another kind
    NOT_BUILT = "not_built"


@dataclass(frozen=True)
class Deleted:
    """The result of deleting a model, or one version of it.

    Attributes:
        versions: their numbers, in ascending order.
        aliases: names that stood for one of them, and stand for nothing now.
        builds: the number of builds without any request left.
    """

    model: str
    versions: tuple[int, ...]
    aliases: tuple[str, ...] = ()
    builds: int = 0


@dataclass(frozen=True)
class ModelVersion:
    """One file that was pushed under a name. The same bytes under the same name are the same version.

    Attributes:
        number: counts from 1 for each name.
        source: the digest of the file.
        format: of the file, such as `tflite`.
        metadata: what was said of it beside the file.
    """

    name: str
    number: int
    source: Digest
    format: str
    size_bytes: int
    created_at: datetime
    metadata: ModelMetadata = NOTHING
