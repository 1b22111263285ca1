"""Adaptive rounding: rounds each weight up or down so that the layer's results change least. (Rounding to the nearest
step changes the weights least.)

Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization, arXiv:2004.10568. Let E be a row of the
rounding errors of the weights, and let G be the sum of x xᵀ over the columns x of the operand. The squared error of the
layer's results, summed over all columns, is then E G Eᵀ. Minimizing it is a quadratic problem over zeros and ones (the
paper's equation 20). The paper solves this problem by relaxation; here it is solved by descent. Starting with the
nearest steps, every weight whose other rounding reduces the error is switched, until no switch reduces it. So the error
is never larger than with rounding to the nearest step.
"""

from __future__ import annotations

import numpy as np

from service.core.models.arrays import Array

SWEEPS = 20  # limit of the passes over all weights
_BLOCK = 128  # number of columns within which the slopes are updated after each change
_DAMPING = (
    # fraction of the mean square of a column's elements; it adds a small weight for directions that did not occur in
    # the inputs
    0.01
)
# the smallest gain that counts, relative to a weight's own term; a smaller one may be a rounding error of the sums
_GAIN = 1e-9


def rounded_adaptively(weights: Array, products: Array, most: int) -> Array:
    """Rounds weights adaptively.
    Args:
        weights: `[groups, rows, K]` in steps, between `-most` and `most`.
        products: G of each group, `[groups, K, K]`, symmetric and positive semidefinite.

    Returns:
        Whole steps, as float64. Each is the step below or above the weight, at most one away from the nearest step.
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
            for index in range(near.shape[-1]):
                at = start + index
                other = np.where(errors[..., at] > 0, -1.0, 1.0)
                change = 2 * other * near[..., index] + own[..., at]
                is_better = (change < -_GAIN * own[..., at]) & (np.abs(steps[..., at] + other) <= most)
                if is_better.any():
                    turn = np.where(is_better, other, 0.0)
                    steps[..., at] += turn
                    errors[..., at] += turn
                    near += turn[..., None] * within[:, index, None]
                    turned = True
            slopes += (errors[..., block] - before) @ gram[:, block]
        if not turned:
            break
    return steps
