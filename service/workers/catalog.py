"""Models, builds and aliases, written into the store's index too: a database that was lost is rebuilt from the store.

The index says which file a model version is, which artifact answers which build key for whom, and what the aliases of
a model stand for. What only the database knows is lost with it: builds that failed, that wait or that run, and the
history of all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from service.cache import EMPTY_MEDIA_TYPE, Descriptor, Manifest, OciLayout
from service.core.alias import aliases_in, annotation_of, is_annotation
from service.core.artifact import (
    ARTIFACT_TYPE,
    BUILD_KEY_ANNOTATION,
    FORMAT_ANNOTATION,
    NUMERICS_ANNOTATION,
    OPTIONS_ANNOTATION,
    SOURCE_ANNOTATION,
    SOURCE_MEDIA_TYPE,
    TARGET_ANNOTATION,
    model_annotation,
    models_in,
)
from service.core.build import Build, BuildInputs, BuildState
from service.core.digest import Digest, parse_digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound
from service.core.model import ModelVersion
from service.db import AliasStore, BuildStore, ModelStore

_logger = logging.getLogger(__name__)
_PAGE = 200
_ListedBuild = tuple[BuildInputs, Digest, Digest, list[tuple[str, int, datetime]]]  # with key, artifact, requests


@dataclass(frozen=True)
class Restored:
    """How much of a database was missing."""

    versions: int
    builds: int
    aliases: int = 0


def record_version(layout: OciLayout, version: ModelVersion) -> None:
    """Lists the file of a model version in the index; to be called after each push.

    Raises:
        NotFound: the file is not stored.
        StorageFull: no space is left.
    """
    source = Descriptor(SOURCE_MEDIA_TYPE, version.source, version.size_bytes)
    manifest = Manifest(
        SOURCE_MEDIA_TYPE,
        layout.put_blob_descriptor(EMPTY_MEDIA_TYPE, b"{}"),
        (source,),
        {FORMAT_ANNOTATION: version.format},
    )
    layout.put_manifest(manifest, model_annotation(version.name, version.number, version.created_at))


def record_build(layout: OciLayout, builds: BuildStore, build: Build) -> None:
    """Writes to the index whom a succeeded build answers; to be called when it has succeeded, and whenever a request
    was answered by one that had. Does nothing for builds that answer nobody.

    Raises:
        NotFound: the artifact is not listed.
        StorageFull: no space is left.
    """
    if build.artifact is not None and not build.invalidated:
        layout.annotate(build.artifact, _annotations_of(builds, build))


def record_aliases(layout: OciLayout, aliases: AliasStore, model: str | None = None) -> None:
    """Writes the aliases of a model, or of all, to the index; to be called after each change of one.

    The table is read under the index's lock, so that of two changes the later one is also the last that is written.

    Raises:
        StorageFull: no space is left.
    """
    with layout.change_annotations() as annotations:
        for gone in [name for name in annotations if is_annotation(name, model)]:
            del annotations[gone]
        annotations |= map(annotation_of, aliases.list(model))


def synchronize(layout: OciLayout, builds: BuildStore, models: ModelStore, aliases: AliasStore) -> Restored:
    """Makes the database and the index agree; to be called when the service starts.

    What the database lost is restored from the index; then what a killed process did not get to write to the index is
    written. What both know is not changed.
    """
    restored = Restored(
        versions=sum(models.restore(version) for version in _listed_versions(layout)),
        builds=sum(builds.restore(*listed) for listed in _listed_builds(layout)),
        aliases=sum(aliases.restore(alias) for alias in aliases_in(layout.annotations())),
    )
    if restored != Restored(0, 0, 0):
        _logger.warning(
            "restored %d model versions, %d builds and %d aliases", restored.versions, restored.builds, restored.aliases
        )
    known = {(version.name, version.number) for version in _listed_versions(layout)}
    for version in models.all_versions():
        if (version.name, version.number) not in known:
            if layout.blobs.exists(version.source):
                record_version(layout, version)
            else:
                _logger.warning("the file of %s version %d is lost", version.name, version.number)
    _record_builds(layout, builds)
    record_aliases(layout, aliases)
    return restored


def _record_builds(layout: OciLayout, builds: BuildStore) -> None:
    listed = {entry.digest: entry.annotations for entry in layout.index()}
    for build in _all_succeeded(builds):
        # Of several builds with one artifact the newest is recorded, so it comes first and is the only one.
        annotations = listed.pop(build.artifact, None) if build.artifact and not build.invalidated else None
        if annotations is not None and not _annotations_of(builds, build).items() <= annotations.items():
            record_build(layout, builds, build)


def _annotations_of(builds: BuildStore, build: Build) -> dict[str, str]:
    annotations = {BUILD_KEY_ANNOTATION: str(build.key)}
    for model, version, asked_at in builds.requests(build.id):
        annotations |= model_annotation(model, version, asked_at)
    return annotations


def _listed_versions(layout: OciLayout) -> Iterator[ModelVersion]:
    for entry, manifest in _manifests(layout, SOURCE_MEDIA_TYPE):
        (source,) = manifest.layers
        for name, number, pushed_at in models_in(entry.annotations):
            format = manifest.annotations[FORMAT_ANNOTATION]
            yield ModelVersion(name, number, source.digest, format, source.size_bytes, pushed_at)


def _listed_builds(layout: OciLayout) -> list[_ListedBuild]:
    """Who asked first comes first, because what is asked for last is served."""
    found: list[_ListedBuild] = []
    for entry, manifest in _manifests(layout, ARTIFACT_TYPE):
        requests = models_in(entry.annotations)
        key = entry.annotations.get(BUILD_KEY_ANNOTATION)
        if key is None or not requests:
            continue  # its build was killed before it succeeded, and will find it again
        if not all(layout.blobs.exists(part.digest) for part in (manifest.config, *manifest.layers)):
            _logger.warning("artifact %s is incomplete, and is not restored", entry.digest)
            continue
        about = manifest.annotations
        source = parse_digest(about[SOURCE_ANNOTATION])
        options = json.loads(about.get(OPTIONS_ANNOTATION, "{}"))
        inputs = BuildInputs(source, about[TARGET_ANNOTATION], about[NUMERICS_ANNOTATION], {}, options)
        found.append((inputs, parse_digest(key), entry.digest, requests))
    return sorted(found, key=lambda listed: listed[3][-1][2])


def _manifests(layout: OciLayout, artifact_type: str) -> Iterator[tuple[Descriptor, Manifest]]:
    for entry in layout.index():
        if entry.artifact_type == artifact_type:
            try:
                yield entry, layout.manifest(entry.digest)
            except (NotFound, CorruptBlob, InvalidInput) as error:
                _logger.warning("manifest %s in the store's index: %s", entry.digest, error)


def _all_succeeded(builds: BuildStore) -> Iterator[Build]:
    cursor: str | None = None
    while True:
        page, cursor = builds.list(state=BuildState.SUCCEEDED, limit=_PAGE, cursor=cursor)
        yield from page
        if cursor is None:
            return
