"""Reads the metadata of the model file from which an artifact was compiled."""

from __future__ import annotations

import json

from service.cache.layout import OciLayout
from service.core.artifacts.artifact import Report
from service.core.digest import Digest
from service.core.models.metadata import NOTHING, ModelMetadata


def metadata_of(layout: OciLayout, artifact: Digest) -> ModelMetadata:
    """Returns the metadata in the facts that are attached to an artifact; empty if no facts are attached.

    Raises:
        CorruptBlob, NotFound: a blob of the facts is damaged or missing.
        InvalidInput: the facts do not have the form that the compiler writes.
    """
    facts = layout.attached(artifact, Report.FACTS)
    return ModelMetadata.from_file(json.loads(facts)) if facts else NOTHING
