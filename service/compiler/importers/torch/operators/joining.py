"""Operators that join tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType


def _cat(node: Node, qx: Any, dim: Any = 0, scale: Any = None, zero_point: Any = None) -> Value:
    """Converts `quantized::cat`. `aten::cat` has no scale and zero point for the output; the output then has the scale
    and zero point of the first part (`cat_quantized_cpu` in qconcat.cpp).
    """
    parts = [node.activation(part) for part in node.parts(qx)]
    first = parts[0][1]
    if any(quantized.storage != first.storage for _, quantized in parts):
        node.unsupported("joins tensors of different storage types")
    given = (first.scale, first.zero_point) if scale is None else (scale, zero_point)
    return join(node, parts, dim, node.per_tensor(first.storage, *given))


def join(node: Node, parts: Sequence[tuple[Value, QuantizedType]], dim: Any, out_type: QuantizedType) -> Value:
    axis = node.axis(dim, len(parts[0][0].shape))
    exprs, types = [part.expr for part, _ in parts], [quantized for _, quantized in parts]
    return node.value(ops.concatenate(exprs, types, out_type, axis), out_type)


RULES = {
    "quantized::cat": _cat,
    "aten::cat": _cat,
}
