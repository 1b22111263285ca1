"""Reads the documents of an artifact archive. Called by the API; nothing in the archive is run."""

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
from service.core.agreement import Outcome
from service.core.artifact import (
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
from service.core.compatibility import check_config_type
from service.core.digest import Digest
from service.core.errors import InvalidInput, MalformedModel, UnsupportedFormat
from service.core.numerics import parse_mode
from service.core.options import batch_of
from service.core.target import Target, parse_target

_LAYERS = [LIBRARY_MEDIA_TYPE, CONSTANTS_MEDIA_TYPE]


@dataclass(frozen=True)
class Received:
    """An archive that holds one artifact.

    Attributes:
        digest: of its manifest.
        options: that it was built with, as those of a build.
        reports: the manifests of those that came along, by kind.
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
    """The only artifact in a folder as an archive to be pushed, as long as the block runs: the same for the same
    artifact, wherever it was run meanwhile.

    Raises:
        NotFound: the folder holds none, or several.
        CorruptBlob: some of it is damaged.
    """
    layout = OciLayout.open(folder)
    digest = only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
    # A report of another machine differs in words; without a difference to carry, equal artifacts are equal archives.
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
    """Raises `UnsupportedFormat` unless a file that begins with `head` can be an archive of an artifact."""
    if not head.startswith(MAGIC):
        raise UnsupportedFormat(
            "the file is not an archive of an artifact",
            hint="octet push DIR sends one; a model file goes to PUT /api/v1/models",
        )


def is_archive(path: Path) -> bool:
    """Whether a file begins as an archive of an artifact does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def received(path: Path) -> Received:
    """Describes the archive at `path` from its documents alone; nothing in it is run.

    Raises:
        MalformedModel: it is no archive of an artifact; NotFound, DigestMismatch: some of it is missing or damaged.
        InvalidInput: it holds several, or one that cannot be served by itself.
        UnknownTarget, Unsupported: it is of another release, or for a target or in a numerics mode that is not known
            here.
    """
    archive = LayoutArchive(path)
    listed = [entry for entry in archive.manifests if entry.media_type == MANIFEST_MEDIA_TYPE]
    manifests = {entry.digest: _manifest(archive, entry) for entry in listed}
    artifacts = {digest: each for digest, each in manifests.items() if each.artifact_type == ARTIFACT_TYPE}
    if len(artifacts) != 1:
        raise InvalidInput(f"the archive holds {len(artifacts)} artifacts", hint="push one: octet push DIR --artifact")
    ((digest, manifest),) = artifacts.items()
    check_config_type(manifest.config.media_type)
    if [layer.media_type for layer in manifest.layers] != _LAYERS:
        raise MalformedModel(f"artifact {digest} has other layers than a library and constants")
    try:
        target, numerics = manifest.annotations[TARGET_ANNOTATION], manifest.annotations[NUMERICS_ANNOTATION]
        options = dict(json.loads(manifest.annotations.get(OPTIONS_ANNOTATION, "{}")))
        batch = batch_of(options)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        raise MalformedModel(f"artifact {digest} does not say what it was built for: {error}") from error
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
