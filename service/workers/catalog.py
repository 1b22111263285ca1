"""Copies models, builds and aliases from the database into the store's index, so that a lost database can be rebuilt.

The index contains the file of each model version, the artifact of each build key with the versions that requested it,
and the versions that a model's aliases point at. All other data is lost with the database: builds that failed, wait or
run, and the history.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from service.cache import EMPTY_MEDIA_TYPE, Descriptor, IndexAnnotations, Manifest, OciLayout
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    BUILD_KEY_ANNOTATION,
    FORMAT_ANNOTATION,
    METADATA_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    OPTIONS_ANNOTATION,
    SOURCE_ANNOTATION,
    SOURCE_MEDIA_TYPE,
    TARGET_ANNOTATION,
    TOKENIZER_MEDIA_TYPE,
    Report,
    model_annotation,
    model_annotation_name,
    models_in,
)
from service.core.builds.build import Build, BuildInputs, BuildState
from service.core.digest import Digest, parse_digest
from service.core.errors import CorruptBlob, Different, InvalidInput, NotFound
from service.core.models.alias import aliases_in, annotation_of, is_annotation
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.model import Deleted, ModelVersion
from service.core.verification.agreement import different_from
from service.db import AliasStore, BuildStore, ModelStore

_logger = logging.getLogger(__name__)
_PAGE = 200
# The build's inputs, its key, its artifact, the versions that request it, and the reason if it must not be served.
_ListedBuild = tuple[BuildInputs, Digest, Digest, list[tuple[str, int, datetime]], Different | None]


@dataclass(frozen=True)
class Restored:
    """The number of entries restored to a database."""

    versions: int
    builds: int
    aliases: int = 0


def record_version(layout: OciLayout, models: ModelStore, version: ModelVersion) -> None:
    """Lists the file of a model version in the index. Call it after each push.

    Raises:
        NotFound: the file is not stored, or the version has been deleted since.
        StorageFull: no space is left.
    """

    def current_annotation() -> dict[str, str]:
        current = models.version(version.name, version.number)
        return model_annotation(current.name, current.number, current.created_at)

    source = Descriptor(SOURCE_MEDIA_TYPE, version.source, version.size_bytes)
    manifest = Manifest(
        SOURCE_MEDIA_TYPE,
        layout.put_blob_descriptor(EMPTY_MEDIA_TYPE, b"{}"),
        (source,),
        {FORMAT_ANNOTATION: version.format},
    )
    layout.put_manifest(manifest, current_annotation)


def record_metadata(layout: OciLayout, models: ModelStore, version: ModelVersion) -> None:
    """Writes a model version's metadata to the index. Call it after each change.

    Raises:
        NotFound: the version has been deleted since.
        StorageFull: no space is left.
    """
    annotation = model_annotation_name(version.name, version.number)

    def forget(index: IndexAnnotations) -> None:
        for entry, found in index.entries:
            if entry.artifact_type == METADATA_MEDIA_TYPE and found.pop(annotation, "") and not models_in(found):
                index.removed.add(entry.digest)

    layout.rewrite(forget)
    if version.metadata:
        text = layout.put_blob_descriptor(METADATA_MEDIA_TYPE, version.metadata.to_text().encode())
        processing = version.metadata.text
        # The tokenizer is the manifest's config and not a second layer, because the previous release expects one layer.
        config = (
            Descriptor(TOKENIZER_MEDIA_TYPE, processing.tokenizer, processing.tokenizer_bytes)
            if processing.tokenizer
            else layout.put_blob_descriptor(EMPTY_MEDIA_TYPE, b"{}")
        )

        def current_annotation() -> dict[str, str]:
            current = models.version(version.name, version.number)
            return model_annotation(current.name, current.number, current.created_at)

        layout.put_manifest(Manifest(METADATA_MEDIA_TYPE, config, (text,)), current_annotation)


def record_build(layout: OciLayout, builds: BuildStore, build: Build) -> None:
    """Writes to the index which model versions a succeeded build serves. Call it when a build has succeeded, and
    whenever a request is answered by an earlier build. Does nothing if no version requests the build.

    Raises:
        NotFound: the artifact is not listed.
        StorageFull: no space is left.
    """
    if build.artifact is not None and not build.invalidated:
        layout.annotate(build.artifact, lambda: _annotations_of(builds, build))


def delete_model(
    layout: OciLayout, models: ModelStore, aliases: AliasStore, name: str, number: int | None = None, *, force: bool
) -> Deleted:
    """Deletes a model, or one version of it, from the database and the index. If the process is killed in the middle,
    both are as before.

    The tables change while the index is locked, and the index is written last. If the process is killed before that,
    the index still lists the model, and `synchronize` restores its rows. The model's files become garbage.

    Raises:
        NotFound: the model or version does not exist.
        Conflict: an alias points at the version, and `force` is not set.
        StorageFull: no space is left for the index. The rows are already deleted from the tables.
    """
    deleted: list[Deleted] = []

    def change(index: IndexAnnotations) -> None:
        deleted.append(models.delete(name, number, force=force))
        gone = {model_annotation_name(name, each) for each in deleted[0].versions}
        for entry, found in index.entries:
            for annotation in gone & found.keys():
                del found[annotation]
            if entry.artifact_type in (SOURCE_MEDIA_TYPE, METADATA_MEDIA_TYPE) and not models_in(found):
                index.removed.add(entry.digest)
        _write_aliases(index.own, aliases, name)

    layout.rewrite(change)
    return deleted[0]


def record_aliases(layout: OciLayout, aliases: AliasStore, model: str | None = None) -> None:
    """Writes the aliases of one model, or of all models, to the index. Call it after each change of an alias.

    The table is read under the index's lock, so that the later of two changes is also written last.

    Raises:
        StorageFull: no space is left.
    """
    with layout.change_annotations() as annotations:
        _write_aliases(annotations, aliases, model)


def _write_aliases(annotations: dict[str, str], aliases: AliasStore, model: str | None) -> None:
    for gone in [name for name in annotations if is_annotation(name, model)]:
        del annotations[gone]
    annotations |= map(annotation_of, aliases.list(model))


def synchronize(layout: OciLayout, builds: BuildStore, models: ModelStore, aliases: AliasStore) -> Restored:
    """Makes the database and the index agree. Call it when the service starts.

    First restores from the index what the database lost, then writes to the index what a killed process had not yet
    written. Entries that both have are not changed.
    """
    with layout.lock():  # without the lock, a model that another process is deleting could be restored
        stored = _listed_metadata(layout)
        restored = Restored(
            versions=sum(
                models.restore(replace(version, metadata=stored.get((version.name, version.number), NOTHING)))
                for version in _listed_versions(layout)
            ),
            builds=sum(builds.restore(*listed) for listed in _listed_builds(layout)),
            aliases=sum(aliases.restore(alias) for alias in aliases_in(layout.annotations())),
        )
    if restored != Restored(0, 0, 0):
        _logger.warning(
            "restored %d model versions, %d builds and %d aliases from the store: the database did not have them",
            restored.versions,
            restored.builds,
            restored.aliases,
        )
    listed = {(version.name, version.number) for version in _listed_versions(layout)}
    for version in models.all_versions():
        if (version.name, version.number) not in listed:
            if layout.blobs.exists(version.source):
                record_version(layout, models, version)
            else:
                _logger.warning("the file of %s version %d is lost", version.name, version.number)
        if version.metadata != stored.get((version.name, version.number), NOTHING):
            record_metadata(layout, models, version)
    _record_builds(layout, builds)
    record_aliases(layout, aliases)
    return restored


def _record_builds(layout: OciLayout, builds: BuildStore) -> None:
    listed = {entry.digest: entry.annotations for entry in layout.index()}
    for build in _all_built(builds):
        # The newest build comes first. If several builds have the same artifact, only that one is recorded.
        annotations = listed.pop(build.artifact, None) if build.artifact and not build.invalidated else None
        if annotations is not None and not _annotations_of(builds, build).items() <= annotations.items():
            record_build(layout, builds, build)


def _annotations_of(builds: BuildStore, build: Build) -> dict[str, str]:
    """Returns the annotations of the versions that request a build; may be empty."""
    annotations: dict[str, str] = {}
    for model, version, requested_at in builds.requests(build.id):
        annotations |= model_annotation(model, version, requested_at)
    return annotations and annotations | {BUILD_KEY_ANNOTATION: str(build.key)}


def _listed_versions(layout: OciLayout) -> Iterator[ModelVersion]:
    for entry, manifest in _manifests(layout, SOURCE_MEDIA_TYPE):
        (source,) = manifest.layers
        for name, number, pushed_at in models_in(entry.annotations):
            format = manifest.annotations[FORMAT_ANNOTATION]
            yield ModelVersion(name, number, source.digest, format, source.size_bytes, pushed_at)


def _listed_metadata(layout: OciLayout) -> dict[tuple[str, int], ModelMetadata]:
    """Returns the metadata of versions, by name and number. A damaged entry is ignored."""
    found: dict[tuple[str, int], ModelMetadata] = {}
    for entry, manifest in _manifests(layout, METADATA_MEDIA_TYPE):
        (text,) = manifest.layers
        try:
            metadata = ModelMetadata.from_text(layout.blobs.read(text.digest).decode())
        except (NotFound, CorruptBlob, InvalidInput, UnicodeDecodeError) as error:
            _logger.warning("cannot read metadata %s in the store's index: %s", entry.digest, error)
            continue
        found |= {(name, number): metadata for name, number, _ in models_in(entry.annotations)}
    return found


def _listed_builds(layout: OciLayout) -> list[_ListedBuild]:
    """Returns the listed builds. The build that was requested last is at the end, because it is the one that is
    served.
    """
    found: list[_ListedBuild] = []
    for entry, manifest in _manifests(layout, ARTIFACT_TYPE):
        requests = models_in(entry.annotations)
        key = entry.annotations.get(BUILD_KEY_ANNOTATION)
        if key is None or not requests:
            continue  # the worker was killed before the build succeeded; the next attempt finds the artifact again
        if not all(layout.blobs.exists(part.digest) for part in (manifest.config, *manifest.layers)):
            _logger.warning("artifact %s is incomplete, and is not restored", entry.digest)
            continue
        about = manifest.annotations
        source = parse_digest(about[SOURCE_ANNOTATION])
        options = json.loads(about.get(OPTIONS_ANNOTATION, "{}"))
        inputs = BuildInputs(source, about[TARGET_ANNOTATION], about[NUMERICS_ANNOTATION], {}, options)
        found.append((inputs, parse_digest(key), entry.digest, requests, _different(layout, entry.digest)))
    return sorted(found, key=lambda listed: listed[3][-1][2])


def _manifests(layout: OciLayout, artifact_type: str) -> Iterator[tuple[Descriptor, Manifest]]:
    for entry in layout.index():
        if entry.artifact_type == artifact_type:
            try:
                yield entry, layout.manifest(entry.digest)
            except (NotFound, CorruptBlob, InvalidInput) as error:
                _logger.warning("cannot read manifest %s in the store's index: %s", entry.digest, error)


def _different(layout: OciLayout, artifact: Digest) -> Different | None:
    """Returns why an artifact is not served, if its numerics report shows that the artifact differs from its
    reference.
    """
    try:
        return different_from(json.loads(layout.attached(artifact, Report.NUMERICS) or b"{}"))
    except (NotFound, CorruptBlob, InvalidInput, ValueError) as error:
        _logger.warning("cannot read the numerics report of artifact %s: %s", artifact, error)
        return None


def _all_built(builds: BuildStore) -> Iterator[Build]:
    """Yields every build that has an artifact."""
    for state in [state for state in BuildState if state.has_artifact]:
        cursor: str | None = None
        while True:
            page, cursor = builds.list(state=state, limit=_PAGE, cursor=cursor)
            yield from page
            if cursor is None:
                break
