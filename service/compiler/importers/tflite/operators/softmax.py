"""SOFTMAX."""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops

# Storage -> the scale and zero point that the kernels write.
_WRITTEN = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
_TOLERANCE = 0.001  # relative to the scale


def softmax(node: Node) -> relax.Var:
    """Converts SOFTMAX, over the last axis. The kernels write probabilities in steps of 1/256, where 0 is the smallest
    stored value, or in steps of 1/32768. The output must therefore have this quantization (`SoftmaxPrepare` in
    tflite/kernels/activations.cc checks it, except for uint8).
    """
    in_type, out_type = node.stored_types()
    scale, zero_point = _WRITTEN[out_type.storage]
    if abs(out_type.scale - scale) > _TOLERANCE * scale or out_type.zero_point != zero_point:
        node.unsupported(f"writes {out_type}; its kernel writes scale 1/{round(1 / scale)} and zero point {zero_point}")
    node.require(bool(node.input(0).shape), "has a scalar input", node.input(0))
    beta = float(node.option("beta"))  # type: ignore[arg-type]
    node.require(math.isfinite(beta) and beta > 0, f"has beta {beta}, which must be positive and finite")
    return node.emit(ops.softmax(node.expr(0), in_type, out_type, beta=beta))
