"""Metadata from an artifact's model file."""

from __future__ import annotations

import json

from service.cache.layout import OciLayout
from service.core.artifact import Report
from service.core.digest import Digest
from service.core.metadata import NOTHING, ModelMetadata


def metadata_of(layout: OciLayout, artifact: Digest) -> ModelMetadata:
    """By the facts that are attached to the artifact; nothing where there are none.

    Raises:
        CorruptBlob, NotFound: a part of them is damaged or gone.
        InvalidInput: they are not what the compiler writes.
    """
    facts = layout.attached(artifact, Report.FACTS)
    return ModelMetadata.from_json(json.loads(facts).get("metadata", {})) if facts else NOTHING
