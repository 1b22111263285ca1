"""SOFTMAX."""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.types import STORAGE_RANGES

_SCALE, _TOLERANCE = 1 / 256, 0.001 / 256


def softmax(node: Node) -> relax.Var:
    """Over the last axis. The kernels write probabilities in 1/256, from the smallest stored value upwards, so the
    output has to be quantized like that (`SoftmaxPrepare` in tflite/kernels/activations.cc checks it for int8)."""
    in_type, out_type = node.in_type(0), node.out_type()
    node.require(in_type.storage == out_type.storage, f"reads {in_type.storage}, but writes {out_type.storage}")
    if abs(out_type.scale - _SCALE) > _TOLERANCE or out_type.zero_point != STORAGE_RANGES[out_type.storage][0]:
        node.unsupported(f"writes {out_type}; its kernel writes scale 1/256 and the smallest zero point")
    node.require(bool(node.input(0).shape), "has a scalar input", node.input(0))
    beta = float(node.option("beta"))  # type: ignore[arg-type]
    node.require(math.isfinite(beta) and beta > 0, f"has beta {beta}")
    return node.emit(ops.softmax(node.expr(0), in_type, out_type, beta=beta))
