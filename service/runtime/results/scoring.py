"""Scores of classes, and the names of the classes."""

from __future__ import annotations

import numpy as np

from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Activation


def activated(values: Array, activation: Activation | None) -> Array:
    """Returns the scores of the last axis, in float64. None returns the values unchanged."""
    wide = values.astype(np.float64)
    match activation:
        case Activation.SOFTMAX:
            powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
            shares: Array = powers / powers.sum(axis=-1, keepdims=True)
            return shares
        case Activation.SIGMOID:
            small = np.exp(-np.abs(wide))  # at most 1, so that nothing overflows
            scores: Array = np.where(wide >= 0, 1, small) / (1 + small)
            return scores
        case Activation.TANH:
            hyperbolic: Array = np.tanh(wide)
            return hyperbolic
    return wide


def label_of(index: int, metadata: ModelMetadata) -> str:
    """Returns the name of a class, or its number if it has no name."""
    return metadata.labels[index] if 0 <= index < len(metadata.labels) else str(index)
