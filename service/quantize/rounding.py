"""Adaptive rounding: weights up or down so that a layer's results change least, not so that each weight does.

Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization, arXiv:2004.10568. The error of a layer's
results, summed over its columns x, is E G Eᵀ for each row E of what rounding does to the weights, with G the sum of
x xᵀ: a quadratic problem of zeros and ones (the paper's equation 20). It is solved here not by the paper's relaxation
but by descent: from the nearest steps on, every weight that is better off rounded the other way is, until none is. So
the error is never larger than that of rounding to the nearest.
"""

from __future__ import annotations

import numpy as np

from service.core.arrays import Array

SWEEPS = 20  # over all weights, at most
_BLOCK = 128  # of columns, within which errors are kept up to date one by one
_DAMPING = 0.01  # of the mean square of a column's elements: what the inputs did not show counts a little
_GAIN = 1e-9  # of a weight's own share: less than that is rounding of the sums


def rounded_adaptively(weights: Array, products: Array, most: int) -> Array:
    """
    Args:
        weights: `[groups, rows, K]` in steps, between `-most` and `most`.
        products: G of each group, `[groups, K, K]`, symmetric and positive semidefinite.

    Returns:
        Whole steps, each at most one from the nearest: those below or above `weights`. Float64.
    """
    size = products.shape[-1]
    spread = np.trace(products, axis1=1, axis2=2) / size
    gram = products + _DAMPING * spread[:, None, None] * np.eye(size)
    own = np.diagonal(gram, axis1=1, axis2=2)[:, None]  # [groups, 1, K]
    steps = np.clip(np.rint(weights), -most, most)
    errors = steps - weights
    slopes = errors @ gram
    for _ in range(SWEEPS):
        turned = False
        for start in range(0, size, _BLOCK):
            block = slice(start, start + _BLOCK)
            before, near, within = errors[..., block].copy(), slopes[..., block].copy(), gram[:, block, block]
            for place in range(near.shape[-1]):
                at = start + place
                other = np.where(errors[..., at] > 0, -1.0, 1.0)
                change = 2 * other * near[..., place] + own[..., at]
                is_better = (change < -_GAIN * own[..., at]) & (np.abs(steps[..., at] + other) <= most)
                if is_better.any():
                    turn = np.where(is_better, other, 0.0)
                    steps[..., at] += turn
                    errors[..., at] += turn
                    near += turn[..., None] * within[:, place, None]
                    turned = True
            slopes += (errors[..., block] - before) @ gram[:, block]
        if not turned:
            break
    return steps
