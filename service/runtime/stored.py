"""Artifacts in a folder, which are read and checked before any part of them is loaded."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path

from service.cache import OciLayout
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    OPTIONS_ANNOTATION,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    ArtifactConfig,
    only_artifact,
)
from service.core.artifacts.compatibility import check_config_type
from service.core.builds.options import buckets_of
from service.core.digest import Digest
from service.core.elf import ElfError, check_library
from service.core.errors import UnsafeLibrary, Unsupported
from service.core.target import detect_host, parse_target
from service.runtime.trust import Trust

_OF_A_MODEL = (SOURCE_ANNOTATION, TARGET_ANNOTATION, NUMERICS_ANNOTATION)


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact whose bytes were hashed, and of which no part is loaded yet."""

    digest: Digest
    config: ArtifactConfig
    library: Path
    constants: Path

    @staticmethod
    def read(layout: OciLayout, digest: Digest, trust: Trust) -> StoredArtifact:
        """Reads an artifact, and checks its signature and the digests of its files.

        Raises:
            Untrusted: none of the trusted keys signed the artifact.
            NotFound, CorruptBlob: a part of the artifact is missing or damaged.
            Unsupported: the artifact is for another release.
        """
        trust.check(layout, digest)
        manifest = layout.manifest(digest)
        check_config_type(manifest.config.media_type)
        config = ArtifactConfig.from_json(json.loads(layout.blobs.read(manifest.config.digest)))
        files = {layer.media_type: layout.blobs.path(layer.digest) for layer in manifest.layers}
        return StoredArtifact(digest, config, files[LIBRARY_MEDIA_TYPE], files[CONSTANTS_MEDIA_TYPE])

    def check(self) -> None:
        """Makes the same checks as `load_files`. Raises `Unsupported` or `UnsafeLibrary`."""
        check_host(self.config)
        check_code(self.config, self.library)


def artifacts_of_model(layout: OciLayout) -> list[Digest]:
    """Returns the only artifact in the layout, or those that are the buckets of one model.

    Raises:
        NotFound: the layout has no artifact, or its artifacts are not buckets of one model.
    """
    listed = layout.index()
    digests = [entry.digest for entry in listed if entry.artifact_type == ARTIFACT_TYPE]
    if len(digests) < 2 or len({_model_of(layout, digest) for digest in digests}) > 1:
        return [only_artifact((entry.digest, entry.artifact_type) for entry in listed)]
    return digests


def _model_of(layout: OciLayout, digest: Digest) -> object:
    """Returns a key that all buckets of one model share. For an artifact without buckets, the key is unique."""
    annotations = layout.manifest(digest).annotations
    buckets = buckets_of(json.loads(annotations.get(OPTIONS_ANNOTATION, "{}")))
    if not buckets:
        return digest
    return json.dumps(buckets), *(annotations[name] for name in _OF_A_MODEL)


def check_host(config: ArtifactConfig) -> None:
    """Raises `Unsupported` if the artifact is for another machine. For a GPU, the runtime checks this when it starts
    the driver.
    """
    target = parse_target(config.target)
    if target.device != "cpu" and target.architecture == platform.machine():
        return
    host = detect_host()
    missing = target.missing_on(host)
    if missing:
        raise Unsupported(
            f"the artifact is for {target}, but this {platform.machine()} host lacks {', '.join(sorted(missing))}",
            hint=f"build it for {host.best}" if host.best else host.why_none,
        )


def check_code(config: ArtifactConfig, library: Path) -> None:
    """Raises `UnsafeLibrary` if loading the library could run code, or if this compiler did not write it."""
    try:
        check_library(library.read_bytes(), parse_target(config.target).architecture)
    except ElfError as error:
        raise UnsafeLibrary(
            f"the artifact's library is not loaded: {error}",
            hint="compile the model again; an artifact is native code, and this one is not from this compiler",
        ) from error
