"""Arithmetic on stored values that ATen's quantized kernels do in float32.

They dequantize, compute, divide by the scale of the result, round to the nearest integer, halves to even, and add the
zero point.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.types import QuantizedType

_FAR = 1 << 20  # beyond the range of every 8-bit storage type, and exact in float32


def number(value: float) -> relax.Constant:
    return relax.const(np.array(value, np.float32))


def centred(node: Node, x: Value, in_type: QuantizedType) -> relax.Expr:
    """Returns stored values minus their zero point, as float32."""
    wide = node.emit(relax.op.astype(x.expr, "float32"), "stored")
    return node.emit(relax.op.subtract(wide, number(float(in_type.zero_point))), "centred")


def stored(node: Node, steps: relax.Expr, out_type: QuantizedType) -> Value:
    """Rounds float32 values in steps of the result's scale, and stores them."""
    rounded = node.emit(relax.op.round(_between(node, steps, -_FAR, _FAR)), "rounded")
    moved = node.emit(relax.op.add(rounded, number(float(out_type.zero_point))), "moved")
    return _cast(node, moved, out_type)


def stored_value(node: Node, x: relax.Expr, out_type: QuantizedType) -> Value:
    """Rounds float32 values that include the zero point already, and stores them."""
    return _cast(node, node.emit(relax.op.round(_between(node, x, -_FAR, _FAR)), "rounded"), out_type)


def _cast(node: Node, x: relax.Expr, out_type: QuantizedType) -> Value:
    inside = _between(node, x, out_type.min, out_type.max)
    return node.value(relax.op.astype(inside, out_type.dtype), out_type)


def _between(node: Node, x: relax.Expr, low: float, high: float) -> relax.Expr:
    least = node.emit(relax.op.maximum(x, number(float(low))), "at_least")
    return node.emit(relax.op.minimum(least, number(float(high))), "at_most")
