"""Conversion of images from `[N, C, H, W]`, the layout of ONNX, PyTorch and MXNet.

The dialect's images are `[N, H, W, C]`, so an operator on rows and columns is built between two permutations.
Everything else keeps the framework's layout, so that axes have the same numbers as in the file. The compiler removes
the permutations except those at the inputs and outputs of the model (`qnn/transposes.py`), so importers may emit as
many as they need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from service.core.models.arrays import Array

Emit = Callable[[relax.Expr], relax.Var]

TO_CHANNELS_LAST = (0, 2, 3, 1)
TO_CHANNELS_FIRST = (0, 3, 1, 2)
# The axis of the channels in the dialect's images, for the per-axis types of accumulators.
CHANNELS = 3


def in_channels_last(emit: Emit, x: relax.Expr, body: Callable[[relax.Var], relax.Expr]) -> relax.Var:
    """Applies `body` to an image in channels-last layout. The input and the result of this function are in the
    framework's layout.

    Args:
        emit: binds an expression.
        x: `[N, C, H, W]`.
        body: maps the image as `[N, H, W, C]` to another image. It may bind intermediate values with `emit`.

    Returns:
        `[N, C', H', W']`.
    """
    image = emit(relax.op.permute_dims(x, TO_CHANNELS_LAST))
    return emit(relax.op.permute_dims(emit(body(image)), TO_CHANNELS_FIRST))


def filters_channels_last(weights: Array) -> Array:
    """Transposes weights `[O, C / groups, KH, KW]` to `[O, KH, KW, C / groups]`, as `qnn.conv2d` takes them."""
    return np.ascontiguousarray(np.transpose(weights, TO_CHANNELS_LAST))
