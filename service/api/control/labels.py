"""Checks the labels of a version against the outputs that its builds found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from service.core.errors import InvalidInput
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task

_OF_CLASSES = (None, Task.CLASSIFY, Task.CLASSIFY_IMAGES)  # the tasks whose first output has a score for each class


def check_labels(metadata: ModelMetadata, facts: Mapping[str, Any] | None) -> None:
    """Checks that a classifier has one label for each class.

    Args:
        metadata: the metadata that the version will have.
        facts: the JSON form of `core.models.facts.Facts`; None if no build has read the model yet.

    Raises:
        InvalidInput: the first output has another number of classes.
    """
    outputs = (facts or {}).get("signature", {}).get("outputs", [])
    if not outputs or metadata.task not in _OF_CLASSES:
        return
    shape = outputs[0]["shape"]
    classes = math.prod(shape)
    is_classification = classes > 1 and classes == shape[-1]  # [classes] or [1, classes]
    if is_classification and len(metadata.labels) != classes:
        raise InvalidInput(
            f"{len(metadata.labels)} labels for the {classes} classes of the output {outputs[0]['name']!r}",
            hint="write one label per line, class 0 first",
        )
