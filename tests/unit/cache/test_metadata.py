"""Tests of the metadata and the tokenizer that are stored with an artifact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.cache.metadata import attach_metadata, metadata_of
from service.core.digest import digest_of
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.task import Task
from service.core.models.text import Pooling, TextProcessing
from tests.support.control_plane import publish

TOKENIZER = b'{"model": {}}'
TEXT = TextProcessing(digest_of(TOKENIZER), len(TOKENIZER), pooling=(Pooling.MEAN,))
METADATA = ModelMetadata(("a",), task=Task.EMBED, text=TEXT)


def test_metadata_are_stored_with_their_tokenizer(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    artifact = publish(layout, digest_of(b"model"))
    assert metadata_of(layout, artifact) == NOTHING
    attach_metadata(layout, artifact, METADATA, TOKENIZER)
    assert metadata_of(layout, artifact) == METADATA
    assert layout.blobs.read(digest_of(TOKENIZER)) == TOKENIZER


def test_a_digest_without_its_file_is_not_used(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    artifact = publish(layout, digest_of(b"model"))
    attach_metadata(layout, artifact, METADATA)
    assert metadata_of(layout, artifact) == replace(METADATA, text=TEXT.without_tokenizer())


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path)
    artifact = publish(layout, digest_of(b"model"))
    with pytest.raises(InvalidInput):
        attach_metadata(layout, artifact, METADATA, b"{}")
