"""Frameworks whose images are `[N, C, H, W]`: ONNX, PyTorch, MXNet.

The dialect's images are `[N, H, W, C]`. So an operator on rows and columns is built between two permutations, and its
importer goes on in its own framework's layout, where every axis means what the file says. Of the permutations, the
compiler leaves those at the ends of the model (`qnn/transposes.py`); importers need not save any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

Emit = Callable[[relax.Expr], relax.Var]

TO_CHANNELS_LAST = (0, 2, 3, 1)
TO_CHANNELS_FIRST = (0, 3, 1, 2)
# Axis of the channels in the dialect's images, for the per-axis types of accumulators.
CHANNELS = 3


def in_channels_last(emit: Emit, x: relax.Expr, body: Callable[[relax.Var], relax.Expr]) -> relax.Var:
    """Applies `body` to an image in channels-last layout; input and result are in the framework's layout.

    Args:
        emit: binds an expression.
        x: `[N, C, H, W]`.
        body: takes the image as `[N, H, W, C]` and gives one; it may bind parts of it by `emit`.

    Returns:
        `[N, C', H', W']`.
    """
    image = emit(relax.op.permute_dims(x, TO_CHANNELS_LAST))
    return emit(relax.op.permute_dims(emit(body(image)), TO_CHANNELS_FIRST))


def filters_channels_last(weights: NDArray[Any]) -> NDArray[Any]:
    """`[O, C / groups, KH, KW]` -> `[O, KH, KW, C / groups]`, as `qnn.conv2d` takes them."""
    return np.ascontiguousarray(np.transpose(weights, TO_CHANNELS_LAST))
