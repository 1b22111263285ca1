"""Conversions to and from real types of 8 and 4 bits: products and quotients of real values and their scales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node


def scale_real(make: Callable[..., relax.Call]) -> Callable[[Node], relax.Var]:
    """Returns the converter of a product or a quotient of real values and their scales. Inputs: x, scale."""

    def convert(node: Node) -> relax.Var:
        shape, scale = node.shape(0), node.data(1)
        axis, size = node.attribute("axis", 1), node.attribute("block_size", 0)
        if scale.size == 1:
            scale = scale.reshape(())
        elif size > 0:
            axis = node.axis(axis, len(shape))
            scale = np.repeat(scale, size, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
            node.require(scale.shape == shape, f"has scales that do not fit blocks of {list(shape)}")
        else:
            axis = node.axis(axis, len(shape))
            node.require(
                scale.shape == (shape[axis],), f"has scales {list(scale.shape)}, which do not fit {list(shape)}"
            )
            scale = scale.reshape(-1, *[1] * (len(shape) - axis - 1))
        return node.emit(make(node.expr(0), node.literal(scale.astype(np.float32))))

    return convert
