"""Between real and quantized values."""

from __future__ import annotations

from typing import Any

from service.compiler.importers.torch.node import STORAGES, Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops


def _quantize_per_tensor(node: Node, input: Any, scale: Any, zero_point: Any, dtype: Any) -> Value:
    x = node.tensor(input)
    node.require(x.quantized is None and x.dtype == "float32", f"quantizes {x.dtype}, not float32")
    storage = STORAGES.get(node.integer(dtype))
    if storage is None:
        node.unsupported("quantizes to something else than quint8 or qint8")
    quantized = node.per_tensor(storage, scale, zero_point)
    return node.value(ops.quantize(x.expr, quantized), quantized)


def _dequantize(node: Node, input: Any) -> Any:
    x = node.tensor(input)
    return x if x.quantized is None else node.value(ops.dequantize(x.expr, x.quantized), None)


RULES = {
    "aten::quantize_per_tensor": _quantize_per_tensor,
    "aten::dequantize": _dequantize,
}
