"""Combines the vectors of a text's tokens into one vector, as the module Pooling of sentence-transformers does.

The data plane computes the same bits: native/plane/answer/embedding.cc.

All arithmetic is in float32. Sums add the tokens one after the other, from the first to the last; PyTorch adds them in
another order, so means agree with it within the bounds of float32 sums. The other ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.core.models.arrays import Array
from service.core.models.text import Pooling


def pool(vectors: Array, ways: Sequence[Pooling]) -> Array:
    """Returns the vector of a text, float32 `[len(ways) * size]`: the results of all ways, one after the other.

    Args:
        vectors: the vectors of the tokens in their order, without padding, float32 `[tokens, size]`, at least one.
    """
    joined: Array = np.concatenate([_pool(vectors, way) for way in ways])
    return joined


def normalized(vector: Array) -> Array:
    """Returns a float32 vector divided by its Euclidean norm; a vector of zeros stays one. The norm is computed in
    float64, where the squares are exact, with a sum from the first to the last.
    """
    doubles = vector.astype(np.float64)
    norm = np.sqrt(np.cumsum(doubles * doubles)[-1])
    return np.asarray(vector / np.float32(max(norm, 1e-12)))


def _pool(vectors: Array, way: Pooling) -> Array:
    count = np.float32(len(vectors))
    match way:
        case Pooling.MEAN:
            return np.asarray(_sum(vectors) / count)
        case Pooling.MEAN_SQRT:
            return np.asarray(_sum(vectors) / np.sqrt(count))
        case Pooling.WEIGHTED_MEAN:
            weights = np.arange(1, len(vectors) + 1, dtype=np.float32)
            return np.asarray(_sum(vectors * weights[:, np.newaxis]) / _sum(weights[:, np.newaxis]))
        case Pooling.MAX:
            return np.asarray(vectors.max(axis=0))
        case Pooling.CLS:
            return np.asarray(vectors[0])
        case Pooling.LAST:
            return np.asarray(vectors[-1])


def _sum(rows: Array) -> Array:
    return np.asarray(np.add.reduce(rows, axis=0, dtype=np.float32))
