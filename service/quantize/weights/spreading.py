"""Scales channels with small values so that they use the range of their tensor's other channels.

A stored tensor has one scale. If some channels of the tensor cover a small part of its range, these channels have few
steps, and a depthwise convolution, which reads each channel alone, loses precision. So the weights that produce such a
channel are multiplied by a power of two, and the weights that read it are divided by it. Both are exact in float32. The
effect is similar to one scale per channel (which NNCF uses before depthwise convolutions), but the tensor has a single
scale.

If an activation with a bound (the 6 of ReLU6) is between the two, the bound stays the same, so it is tighter for a
multiplied channel. The same applies to the stored range. The stored range is about `_HEADROOM` times as large as the
values of a multiplied channel in the calibration, because few inputs show only part of the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from service.core.models.arrays import Array
from service.quantize.file.document import Document, Node, rewire

_HEADROOM = 4  # the ratio of the range to a multiplied channel's values, up to the rounding to a power of two
_MOST = 64.0  # the largest factor of a channel
_BOUNDS = ("Clip", "Relu")


def spreadable(document: Document) -> list[str]:
    """Returns the tensors `[N, C, …]` that a convolution produces and only depthwise convolutions read."""
    return [name for name, _, _ in _found(document)]


def factors(channels: Array) -> Array:
    """Returns the factor of each channel, `[C]`: a power of two, which is 1 for a channel of zeros.

    Args:
        channels: the smallest and the largest value of each channel, `[C, 2]`.
    """
    reach = np.abs(np.stack([np.minimum(channels[:, 0], 0), np.maximum(channels[:, 1], 0)]).astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        room = reach.max(axis=1, keepdims=True) / (_HEADROOM * reach)
    room = np.where(reach > 0, room, np.inf).min(axis=0)
    whole = 2.0 ** np.rint(np.log2(np.clip(room, 1.0, _MOST)))
    return np.asarray(np.where(np.isfinite(room), whole, 1.0), np.float32)


def spread(document: Document, by_tensor: Mapping[str, Array]) -> None:
    """Multiplies the channels of `spreadable` tensors. The model computes the same function, except that bounds of
    activations become tighter.
    """
    for name, maker, readers in [*_found(document)] if by_tensor else []:
        if (row := by_tensor.get(name)) is not None:
            _multiply(document, maker, row, len(maker.inputs))
            for reader in readers:
                times = document.constants[reader.inputs[1]].shape[0] // len(row)
                _multiply(document, reader, 1 / np.repeat(row, times), 2)


def _multiply(document: Document, layer: Node, row: Array, end: int) -> None:
    """Multiplies the constant operands 1 to `end - 1` of a convolution (its weights and bias) along their first
    axis.
    """
    at = next(position for position, node in enumerate(document.nodes) if node.outputs == layer.outputs)
    node, made = document.nodes[at], {}  # the convolution may have been multiplied before, so `layer` may be outdated
    for position in range(1, end):
        if name := node.inputs[position]:
            values = document.constants[name]
            made[position] = document.add_constant(name, values * row.reshape(-1, *[1] * (values.ndim - 1)))
    document.nodes[at] = rewire(node, made)


def _found(document: Document) -> Iterator[tuple[str, Node, list[Node]]]:
    """Yields each spreadable tensor, the convolution that produces it, and the convolutions that read it."""
    readers, uses = document.readers(), Counter(name for node in document.nodes for name in node.inputs)
    for maker in document.nodes:
        if not _is_own(document, maker, uses):
            continue
        name = maker.outputs[0]
        behind = readers.get(name, [])
        if len(behind) == 1 and behind[0].op_type in _BOUNDS and name not in document.outputs:
            if not _holds_zero(document, behind[0]):
                continue
            name = behind[0].outputs[0]
            behind = readers.get(name, [])
        channels = document.constants[maker.inputs[1]].shape[0]
        alone = all(_is_depthwise(document, node, name, channels, uses) for node in behind)
        if behind and alone and name not in document.outputs:
            yield name, maker, behind


def _is_own(document: Document, node: Node, uses: Mapping[str, int]) -> bool:
    """Returns true if a node is a convolution with constant weights and bias that no other node reads."""
    known = [document.constants.get(name) for name in node.inputs[1:] if name] if node.op_type == "Conv" else []
    return bool(known) and all(
        each is not None and each.dtype == np.float32 and uses[name] == 1
        for each, name in zip(known, filter(None, node.inputs[1:]), strict=True)
    )


def _is_depthwise(document: Document, node: Node, name: str, channels: int, uses: Mapping[str, int]) -> bool:
    if not _is_own(document, node, uses) or node.inputs[0] != name:
        return False
    return node.attributes.get("group", 1) == channels and document.constants[node.inputs[1]].shape[1] == 1


def _holds_zero(document: Document, bound: Node) -> bool:
    """Returns true if the range of an activation includes zero."""
    if bound.op_type == "Relu":
        return True
    ends = [document.constants.get(name) for name in bound.inputs[1:] if name]
    numbers = [float(end) for end in ends if end is not None and end.size == 1]
    has_both = len(bound.inputs) == 3 and all(bound.inputs) and len(numbers) == 2
    return has_both and numbers[0] <= 0 <= numbers[1]
