"""The metadata of a model that is stored with its artifact: in the facts, and a tokenizer as a report of its own."""

from __future__ import annotations

import json
from dataclasses import replace

from service.cache.layout import OciLayout
from service.core.artifacts.artifact import TOKENIZER_MEDIA_TYPE, Report
from service.core.digest import Digest, canonical_json, digest_of
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata


def metadata_of(layout: OciLayout, artifact: Digest) -> ModelMetadata:
    """Returns the metadata in the facts that are attached to an artifact, with the tokenizer that is attached; empty if
    nothing is attached.

    Raises:
        CorruptBlob, NotFound: a blob of the facts is damaged or missing.
        InvalidInput: the facts do not have the form that the compiler writes.
    """
    facts = layout.attached(artifact, Report.FACTS)
    metadata = ModelMetadata.from_file(json.loads(facts)) if facts else NOTHING
    for tokenizer in layout.contents(artifact, TOKENIZER_MEDIA_TYPE)[:1]:
        size_bytes = layout.blobs.size_bytes(tokenizer)
        text = replace(metadata.text, tokenizer=tokenizer, tokenizer_bytes=size_bytes)
        metadata = replace(metadata, text=text)
    return metadata


def attach_metadata(layout: OciLayout, artifact: Digest, metadata: ModelMetadata, tokenizer: bytes = b"") -> None:
    """Adds metadata to the facts that are attached to an artifact, and attaches the tokenizer. Does nothing without
    facts.

    Args:
        metadata: the metadata of a version, which replaces that of the facts.
        tokenizer: the bytes of the version's tokenizer; empty without one.

    Raises:
        InvalidInput: the tokenizer is not the one in `metadata`.
        StorageFull: no space is left.
    """
    facts = layout.attached(artifact, Report.FACTS)
    if facts is None or not metadata:
        return
    if tokenizer:
        if digest_of(tokenizer) != metadata.text.tokenizer:
            raise InvalidInput("the tokenizer is not the one of the version", hint="try again")
        layout.attach(artifact, TOKENIZER_MEDIA_TYPE, tokenizer)
    layout.attach(artifact, Report.FACTS, canonical_json({**json.loads(facts), "metadata": metadata.to_json()}))
    layout.collect_garbage(min_age_s=0)
