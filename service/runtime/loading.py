"""Loads a `Model` from stored files, after the checks that prevent a crash."""

from __future__ import annotations

from pathlib import Path

from service.cache import OciLayout
from service.core.artifacts.artifact import ArtifactConfig, only_artifact
from service.core.digest import Digest, canonical_json
from service.runtime.bucketed import BucketedModel
from service.runtime.model import Model
from service.runtime.octet_library import NativeModel
from service.runtime.stored import StoredArtifact, artifacts_of_model, check_code, check_host
from service.runtime.threads import Threads
from service.runtime.trust import ANYBODY, Trust


def load(
    path: Path | str | OciLayout,
    digest: Digest | None = None,
    threads: int | Threads = 0,
    trust: Trust = ANYBODY,
) -> Model:
    """Loads the artifact `digest` of the OCI layout at `path`; without a digest, the layout must contain exactly one.

    Args:
        threads: the maximum number of threads per call; 0: one for each core that this process may use.
        trust: the keys whose artifacts may be loaded. `Trust.of` returns those in the settings.

    Raises:
        Untrusted: none of the trusted keys signed the artifact.
        NotFound: the artifact does not exist.
        CorruptBlob: the digest of a blob of the artifact is not the blob's name.
        Unsupported: the artifact is for another machine or another release.
        UnsafeLibrary: loading the artifact's library could run code, or the library was not written by this compiler.
    """
    layout = path if isinstance(path, OciLayout) else OciLayout.open(Path(path))
    digest = digest or only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
    return _load_stored(layout, digest, threads, trust)


def load_model(
    path: Path | str | OciLayout, threads: int | Threads = 0, trust: Trust = ANYBODY
) -> Model | BucketedModel:
    """Loads the model in the OCI layout at `path`: its only artifact, or those that are the buckets of one model.

    Raises:
        NotFound: the layout has no artifact, or its artifacts are not buckets of one model.
        Untrusted, CorruptBlob, Unsupported, UnsafeLibrary: as for `load`.
    """
    layout = path if isinstance(path, OciLayout) else OciLayout.open(Path(path))
    digests = artifacts_of_model(layout)
    shared = threads if isinstance(threads, Threads) else Threads(threads)
    models = [_load_stored(layout, digest, shared, trust) for digest in digests]
    return models[0] if len(models) == 1 and not models[0].signature.is_open else BucketedModel(models)


def _load_stored(layout: OciLayout, digest: Digest, threads: int | Threads, trust: Trust) -> Model:
    stored = StoredArtifact.read(layout, digest, trust)
    return load_files(stored.config, stored.library, stored.constants, digest=digest, threads=threads)


def load_files(
    config: ArtifactConfig,
    library: Path,
    constants: Path,
    *,
    digest: str = "",
    threads: int | Threads = 0,
) -> Model:
    """Loads the artifact that consists of `config` and two files; `threads` as for `load`.

    Raises:
        CorruptBlob: the constants layer is shorter than the config requires.
        Unsupported: the artifact is for another machine or another release.
        UnsafeLibrary: loading the artifact's library could run code, or the library was not written by this compiler.
    """
    check_host(config)
    check_code(config, library)
    shared = threads if isinstance(threads, Threads) else Threads(threads)
    native = NativeModel.load_files(canonical_json(config.to_json()), library, constants)
    return Model(config, native, digest, shared)
