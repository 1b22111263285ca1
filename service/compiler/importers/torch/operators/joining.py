"""Operators that join tensors."""

from __future__ import annotations

from typing import Any

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops


def _cat(node: Node, qx: Any, dim: Any = 0, scale: Any = None, zero_point: Any = None) -> Value:
    """Converts `quantized::cat`. `aten::cat` has no scale and zero point for the output; the output then has the scale
    and zero point of the first part (`cat_quantized_cpu` in qconcat.cpp).
    """
    if not isinstance(qx, list | tuple) or not qx:
        node.unsupported("joins something other than a list of tensors")
    parts = [node.activation(part) for part in qx]
    types = [quantized for _, quantized in parts]
    if len({quantized.storage for quantized in types}) > 1:
        node.unsupported("joins tensors of different storage types")
    first = types[0]
    given = (first.scale, first.zero_point) if scale is None else (scale, zero_point)
    out_type = node.per_tensor(first.storage, *given)
    axis = node.axis(dim, len(parts[0][0].shape))
    return node.value(ops.concatenate([part.expr for part, _ in parts], types, out_type, axis), out_type)


RULES = {
    "quantized::cat": _cat,
    "aten::cat": _cat,
}
