"""From stored bytes to a `Model`: the checks that stand between an artifact and a crash."""

from __future__ import annotations

import json
import mmap
import platform
import shutil
import tempfile
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from service.cache import OciLayout
from service.core.artifact import (
    CONSTANTS_MEDIA_TYPE,
    LIBRARY_MEDIA_TYPE,
    ArtifactConfig,
    only_artifact,
)
from service.core.digest import Digest
from service.core.elf import ElfError, check_library
from service.core.errors import CorruptBlob, UnsafeLibrary, Unsupported
from service.core.running import Place, Running
from service.core.target import detect_host, parse_target
from service.runtime.machine import load_library
from service.runtime.model import Array, Model, views
from service.runtime.threads import Threads


def load(
    path: Path | str | OciLayout,
    digest: Digest | None = None,
    threads: int | Threads = 0,
    running: Running | None = None,
) -> Model:
    """The artifact `digest` of the OCI layout at `path`; without a digest, the layout must hold exactly one.

    Args:
        threads: per call; at most, and for 0, one for each core that this process may use.
        running: where it is noted that native code of the artifact runs, its loading included.

    Raises:
        NotFound: there is no such artifact.
        CorruptBlob: its bytes no longer hash to their names.
        Unsupported: it is for another machine or another TVM.
        UnsafeLibrary: loading its library could run code, or this compiler did not write it.
    """
    layout = path if isinstance(path, OciLayout) else OciLayout.open(Path(path))
    digest = digest or only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
    manifest = layout.manifest(digest)
    config = ArtifactConfig.from_json(json.loads(layout.blobs.read(manifest.config.digest)))
    files = {layer.media_type: layout.blobs.path(layer.digest) for layer in manifest.layers}
    place = running.place(digest) if running else None
    return load_files(
        config, files[LIBRARY_MEDIA_TYPE], files[CONSTANTS_MEDIA_TYPE], digest=digest, threads=threads, place=place
    )


def load_files(
    config: ArtifactConfig,
    library: Path,
    constants: Path,
    *,
    digest: str = "",
    threads: int | Threads = 0,
    place: Place | None = None,
) -> Model:
    """The artifact made of `config` and two files; `threads` as for `load`, `place` as for `Model`.

    Raises:
        CorruptBlob: the constants layer is too short for what the config says of it.
        Unsupported: it is for another machine or another TVM.
        UnsafeLibrary: loading its library could run code, or this compiler did not write it.
    """
    _check_host(config)
    _check_abi(config)
    _check_library(config, library)
    shared = threads if isinstance(threads, Threads) else Threads(threads)
    mapped = _map_constants(config, constants)
    with place or nullcontext():
        return Model(config, _load_library(library), mapped, digest, shared, place)


def _check_host(config: ArtifactConfig) -> None:
    target, host = parse_target(config.target), detect_host()
    missing = target.missing_on(host)
    if missing:
        raise Unsupported(
            f"the artifact is for {target}, but this {platform.machine()} host lacks {', '.join(sorted(missing))}",
            hint=f"build it for {host.best}" if host.best else host.why_none,
        )


def _check_abi(config: ArtifactConfig) -> None:
    here = {"tvm": version("apache-tvm"), "tvm_ffi": version("apache-tvm-ffi")}
    for name, built in config.abi.items():
        if here.get(name) != built:
            raise Unsupported(
                f"the artifact was built with {name} {built}, but this is {name} {here.get(name)}",
                hint="build it again with this release",
            )


def _check_library(config: ArtifactConfig, library: Path) -> None:
    try:
        check_library(library.read_bytes(), parse_target(config.target).architecture)
    except ElfError as error:
        raise UnsafeLibrary(
            f"the artifact's library is not loaded: {error}",
            hint="compile the model again; an artifact is native code, and this one is not from this compiler",
        ) from error


def _load_library(library: Path) -> Any:
    """Maps the library. TVM tells a library by its file name, which a blob does not have: a link has it."""
    if library.suffix == ".so":
        return load_library(library.absolute())
    with tempfile.TemporaryDirectory(prefix="octet-") as folder:
        named = Path(folder, "library.so")
        try:
            named.symlink_to(library.absolute())
        except OSError:
            shutil.copyfile(library, named)
        return load_library(named)


def _map_constants(config: ArtifactConfig, path: Path) -> list[Array]:
    """Views of the mapped file: every instance and process shares its pages. Copy-on-write, and never written."""
    size = path.stat().st_size
    if not size:
        mapped = np.empty(0, np.uint8)
    else:
        with path.open("rb") as file:
            mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    for slot in config.constants:
        if slot.end_bytes > size:
            raise CorruptBlob(f"the constants layer has {size} bytes, but a constant ends at {slot.end_bytes}")
    return views(mapped, config.constants)
