"""Uploads of published models: the zip archive of a folder becomes a model file, a tokenizer and metadata."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from service.api.services import Services
from service.cache import BlobStore
from service.compiler.build.folders import read_folder
from service.compiler.importers.detect import format_of
from service.compiler.importers.published.archives import is_folder_archive
from service.compiler.importers.published.tflite_texts import is_text_model
from service.compiler.messages.published import MODEL_FILE, TOKENIZER_FILE, Found
from service.compiler.sandbox.scratch import scratch_directory
from service.core.digest import Digest
from service.core.errors import QueueFull
from service.core.models.metadata import ModelMetadata
from service.core.models.text import TextProcessing
from service.core.target import Target

_CHUNK_BYTES = 1 << 20
_READERS = threading.Semaphore(2)  # folders that are read at the same time; each takes a process and disk space
_PLACES = threading.Semaphore(8)  # folders that are read or wait for it; each takes a thread
_RETRY_AFTER_S = 5


@dataclass(frozen=True)
class Unpacked:
    """The parts of an upload that are stored.

    Attributes:
        source: the digest of the model file.
        metadata: the metadata with the digest of the tokenizer.
        found: the description of the folder and of the chosen variant; None for a single file.
    """

    source: Digest
    size_bytes: int
    format: str
    metadata: ModelMetadata
    found: Found | None


def is_folder(services: Services, source: Digest) -> bool:
    """Returns true if a blob is the archive of a published model, or a TFLite file with a tokenizer in its metadata.
    Raises `NotFound` and `CorruptBlob`.
    """
    path = services.layout.blobs.path(source)
    return is_folder_archive(path) or is_text_model(path)


def unpack(
    services: Services, folder: Path, variant: str, target: Target, pooling: str, max_length: int | None
) -> Unpacked:
    """Reads a folder in a sandboxed child, and stores its model file and its tokenizer.

    Args:
        folder: a folder, or a zip archive of one.
        variant: the variant to serve; "" for the best for `target`.
        pooling, max_length: replace those of the folder; "" and None for the folder's.

    Raises:
        QueueFull: too many folders are being read.
        OctetError: the folder cannot be read.
    """
    if not _PLACES.acquire(blocking=False):
        raise QueueFull("too many folders are being read", hint="try again later", retry_after_s=_RETRY_AFTER_S)
    try:
        return _unpack(services, folder, variant, target, pooling, max_length)
    finally:
        _PLACES.release()


def _unpack(
    services: Services, folder: Path, variant: str, target: Target, pooling: str, max_length: int | None
) -> Unpacked:
    settings, blobs = services.settings, services.layout.blobs
    settings.scratch_dir.mkdir(parents=True, exist_ok=True)
    with _READERS, scratch_directory(settings.scratch_dir, "folder-") as scratch:
        result = read_folder(
            folder, scratch, settings, variant=variant, target=target, pooling=pooling, max_length=max_length
        )
        model = scratch / MODEL_FILE
        source, size_bytes = store_file(blobs, model), model.stat().st_size
        with model.open("rb") as file:
            format = format_of(file)
        metadata = ModelMetadata.from_json(result.metadata)
        text = metadata.text.without_tokenizer()
        if result.has_tokenizer:
            stored = scratch / TOKENIZER_FILE
            given = TextProcessing(tokenizer=store_file(blobs, stored), tokenizer_bytes=stored.stat().st_size)
            text = given.over(text)
        return Unpacked(source, size_bytes, format, replace(metadata, text=text), result.found)


def store_file(blobs: BlobStore, path: Path) -> Digest:
    """Stores a file, and returns its digest. Raises `StorageFull`."""
    with path.open("rb") as file, blobs.writer() as writer:
        while chunk := file.read(_CHUNK_BYTES):
            writer.write(chunk)
        return writer.commit()
