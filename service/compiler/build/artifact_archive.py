"""Reads the JSON documents in an artifact archive. The API uses it; nothing in the archive is executed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.cache import MANIFEST_MEDIA_TYPE, Descriptor, Manifest, OciLayout
from service.cache.archive import MAGIC, LayoutArchive
from service.cache.export import export
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    OPTIONS_ANNOTATION,
    TARGET_ANNOTATION,
    TRAVELING,
    Report,
    only_artifact,
)
from service.core.artifacts.compatibility import check_config_type
from service.core.builds.numerics import parse_mode
from service.core.builds.options import batch_of
from service.core.digest import Digest
from service.core.errors import InvalidInput, MalformedModel, UnsupportedFormat
from service.core.target import Target, parse_target
from service.core.verification.agreement import Outcome

_LAYERS = [LIBRARY_MEDIA_TYPE, CONSTANTS_MEDIA_TYPE]


@dataclass(frozen=True)
class Received:
    """An archive that contains one artifact.

    Attributes:
        digest: the digest of the artifact's manifest.
        options: the options of the build that created the artifact.
        reports: the manifests of the reports in the archive, by type.
    """

    archive: LayoutArchive
    digest: Digest
    manifest: Manifest
    target: Target
    numerics: str
    options: Mapping[str, Any]
    reports: Mapping[Report, Manifest]


@contextmanager
def archive_of(folder: Path) -> Iterator[Path]:
    """Yields the path of a temporary archive that contains the only artifact in a folder. The archive can be pushed.

    The archives of equal artifacts are equal, even if the artifacts were compiled or verified on different machines.

    Raises:
        NotFound: the folder contains no artifact, or several.
        CorruptBlob: a blob of the artifact is damaged.
    """
    layout = OciLayout.open(folder)
    digest = only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
    # The texts of numerics reports differ between machines even if the artifacts are equal. So a report is included
    # only if it records a difference.
    numerics = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")
    carries = numerics.get("outcome") == Outcome.DIFFERENT
    reports = TRAVELING if carries else tuple(kind for kind in TRAVELING if kind != Report.NUMERICS)
    chunks = export(layout, digest, reports).chunks()
    with tempfile.TemporaryDirectory(prefix="octet-") as directory:
        archive = Path(directory, "artifact.tar")
        with archive.open("wb") as file:
            file.writelines(chunks)
        yield archive


def check_head(head: bytes) -> None:
    """Checks the first bytes of a file.

    Raises:
        UnsupportedFormat: the file cannot be an artifact archive.
    """
    if not head.startswith(MAGIC):
        raise UnsupportedFormat(
            "the file is not an artifact archive",
            hint="octet push DIR sends an artifact archive; send a model file to PUT /api/v1/models",
        )


def is_archive(path: Path) -> bool:
    """Returns true if the file begins like an artifact archive."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def received(path: Path) -> Received:
    """Reads the documents in the archive at `path`. Nothing in the archive is executed.

    Raises:
        MalformedModel: the file is not an artifact archive.
        NotFound, DigestMismatch: a part of the archive is missing or damaged.
        InvalidInput: the archive contains no artifact, several artifacts, or one that was compiled for a batch.
        UnknownTarget, Unsupported: this release does not support the artifact's format, target or numerics mode.
    """
    archive = LayoutArchive(path)
    listed = [entry for entry in archive.manifests if entry.media_type == MANIFEST_MEDIA_TYPE]
    manifests = {entry.digest: _manifest(archive, entry) for entry in listed}
    artifacts = {digest: each for digest, each in manifests.items() if each.artifact_type == ARTIFACT_TYPE}
    if len(artifacts) != 1:
        raise InvalidInput(
            f"the archive contains {len(artifacts)} artifacts instead of one",
            hint="push one artifact: octet push DIR --artifact",
        )
    ((digest, manifest),) = artifacts.items()
    check_config_type(manifest.config.media_type)
    if [layer.media_type for layer in manifest.layers] != _LAYERS:
        raise MalformedModel(f"artifact {digest} must have two layers, a library and constants")
    try:
        target, numerics = manifest.annotations[TARGET_ANNOTATION], manifest.annotations[NUMERICS_ANNOTATION]
        options = dict(json.loads(manifest.annotations.get(OPTIONS_ANNOTATION, "{}")))
        batch = batch_of(options)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        raise MalformedModel(f"the target, mode or options of artifact {digest} cannot be read: {error}") from error
    if batch != 1:
        raise InvalidInput(f"artifact {digest} takes {batch} samples at a time", hint="compile it with --batch 1")
    kinds = {kind.value: kind for kind in TRAVELING}
    reports = {
        kinds[each.artifact_type]: each
        for each in manifests.values()
        if each.artifact_type in kinds and each.subject is not None and each.subject.digest == digest
    }
    return Received(archive, digest, manifest, parse_target(target), parse_mode(numerics), options, reports)


def _manifest(archive: LayoutArchive, entry: Descriptor) -> Manifest:
    try:
        return Manifest.from_bytes(archive.read(entry.digest))
    except InvalidInput as error:
        raise MalformedModel(f"manifest {entry.digest} of the archive: {error.message}") from error
