"""The padding of poolings with `auto_pad`."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.onnx.derived import derived
from service.compiler.importers.onnx.node import Node

_FIRST = 2  # the first axis of windows


def with_explicit_pads(node: Node) -> Node:
    """Returns a pooling with the attribute `pads` instead of the schemes SAME_UPPER and SAME_LOWER.

    ONNX Runtime does not consider dilations here. If windows are further apart than their size, the padding is
    negative: half of the elements that no window needs are removed at the front (core/providers/cpu/nn/
    pool_attributes.h).
    """
    scheme, shape = node.attribute("auto_pad", "NOTSET"), node.shape(0)
    if scheme not in ("SAME_UPPER", "SAME_LOWER"):
        return node
    rank = len(shape) - _FIRST
    kernel = node.integers_attribute("kernel_shape", (1,) * rank, 1)
    strides = node.integers_attribute("strides", (1,) * rank, 1)
    sides = []
    for size, window, stride in zip(shape[_FIRST:], kernel, strides, strict=True):
        total = (-(-size // stride) - 1) * stride + window - size
        half = abs(total + (scheme == "SAME_LOWER")) // 2
        before = half if total >= 0 else -half
        sides.append((before, total - before))
    kept = {name: value for name, value in node.operator.attributes.items() if name not in ("auto_pad", "ceil_mode")}
    kept["pads"] = (*(max(0, before) for before, _ in sides), *(max(0, after) for _, after in sides))
    starts = [max(0, -before) for before, _ in sides]
    if not any(starts):
        return derived(node, {}, kept)
    axes = list(range(_FIRST, len(shape)))
    cropped = relax.op.strided_slice(node.expr(0), axes, starts, list(shape[_FIRST:]))
    return derived(node, {0: node.emit(cropped, "cropped")}, kept)
