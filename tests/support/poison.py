"""Harmful artifacts: the code of one crashes, and another needs more memory than the machine has."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from service.cache import OciLayout
from service.cache.oci import Manifest
from service.core.artifacts.artifact import LIBRARY_MEDIA_TYPE, ArtifactConfig, Report
from service.core.artifacts.call_plan import Space
from service.core.digest import Digest
from tests.support.waiting import WORK_TIMEOUT_S

_DYNSYM, _PT_LOAD = 11, 1
# Machine -> code that writes to address 0. Each kernel begins with it, so that it crashes for any input.
_CRASH = {62: bytes.fromhex("31c08900"), 183: bytes.fromhex("000080d2 000000b9")}


def poison(data_dir: Path, model: str) -> Digest:
    """Replaces the artifact of the builds of `model` by one that crashes, and returns it."""
    return _exchange(data_dir, model, poisoned_copy)


def bloat(data_dir: Path, model: str, extra_bytes: int) -> Digest:
    """Replaces the artifact of the builds of `model` by a correct one with a larger arena, and returns it.

    The offset of each tensor is increased by `extra_bytes`, a multiple of 64. The memory before the tensors is never
    used.
    """
    return _exchange(data_dir, model, lambda layout, artifact: _bloated_copy(layout, artifact, extra_bytes))


def with_library(layout: OciLayout, artifact: Digest, library: bytes) -> Digest:
    """Stores a copy of `artifact` with another library and the original numerics report."""
    manifest = layout.manifest(artifact)
    other = layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library)
    layers = (other if layer.media_type == LIBRARY_MEDIA_TYPE else layer for layer in manifest.layers)
    return _put(layout, artifact, replace(manifest, layers=tuple(layers)))


def poisoned_copy(layout: OciLayout, artifact: Digest) -> Digest:
    manifest = layout.manifest(artifact)
    layers = []
    for layer in manifest.layers:
        if layer.media_type == LIBRARY_MEDIA_TYPE:
            library = bytearray(layout.blobs.read(layer.digest))
            crash = _CRASH[struct.unpack_from("<H", library, 18)[0]]
            for offset in _kernels(library):
                library[offset : offset + len(crash)] = crash
            layer = layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, bytes(library))
        layers.append(layer)
    return _put(layout, artifact, replace(manifest, layers=tuple(layers)))


def _bloated_copy(layout: OciLayout, artifact: Digest, extra_bytes: int) -> Digest:
    manifest = layout.manifest(artifact)
    config = ArtifactConfig.from_json(json.loads(layout.blobs.read(manifest.config.digest)))
    buffers = tuple(
        replace(buffer, at=buffer.at + extra_bytes) if buffer.space is Space.ARENA else buffer
        for buffer in config.plan.buffers
    )
    plan = replace(config.plan, arena_bytes=config.plan.arena_bytes + extra_bytes, buffers=buffers)
    bloated = json.dumps(replace(config, plan=plan).to_json()).encode()
    return _put(
        layout, artifact, replace(manifest, config=layout.put_blob_descriptor(manifest.config.media_type, bloated))
    )


def _exchange(data_dir: Path, model: str, copy: Callable[[OciLayout, Digest], Digest]) -> Digest:
    layout = OciLayout(data_dir / "store")
    with closing(sqlite3.connect(data_dir / "octet.sqlite3", timeout=WORK_TIMEOUT_S)) as database, database:
        ((artifact,),) = database.execute("SELECT DISTINCT artifact FROM builds WHERE model = ?", (model,))
        other = copy(layout, Digest(artifact))
        database.execute("UPDATE builds SET artifact = ? WHERE model = ?", (other, model))
    return other


def _put(layout: OciLayout, artifact: Digest, manifest: Manifest) -> Digest:
    """Stores `manifest` as a copy of `artifact` and attaches the original numerics report."""
    copy = layout.put_manifest(manifest).digest
    report = layout.attached(artifact, Report.NUMERICS)
    assert report is not None
    assert json.loads(report)["verified"] is True
    layout.attach(copy, Report.NUMERICS, report)
    return copy


def _kernels(library: bytearray) -> Iterator[int]:
    """Yields the file offsets of the kernels' code (ELF-64, little-endian)."""
    programs, sections = struct.unpack_from("<QQ", library, 32)
    program_bytes, program_count, section_bytes, section_count = struct.unpack_from("<HHHH", library, 54)
    loads = []
    for index in range(program_count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", library, programs + index * program_bytes)
        if kind == _PT_LOAD:
            loads.append((address, size, offset))
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", library, sections + index * section_bytes) for index in range(section_count)
    ]
    symbols = next(header for header in headers if header[1] == _DYNSYM)
    names = headers[symbols[6]][4]
    for start in range(symbols[4], symbols[4] + symbols[5], 24):
        name_at, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", library, start)
        name = bytes(library[names + name_at : library.index(0, names + name_at)])
        if name.startswith(b"octet_"):
            yield from (value - address + offset for address, size, offset in loads if 0 <= value - address < size)
