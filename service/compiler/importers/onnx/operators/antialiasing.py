"""Resize with `antialias`: each element of a smaller image is a weighted sum of all elements that it covers, as in
Pillow.

Weights and sums are float32. The sums are added in the order of ONNX Runtime
(core/providers/cpu/tensor/upsample_antialias.h), beginning with the last axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import float32
from service.core.models.arrays import Array

# For each element of the result: positions in the operand, and the weight of the element at each position.
Taps = list[tuple[Array, Array]]
_MOST_TAPS = 128
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


@dataclass(frozen=True)
class Filter:
    """A window over the operand. Its width is proportional to the distance between the result's elements.

    Attributes:
        mode: `linear` or `cubic`.
        a: the coefficient of the cubic filter.
        scale: the result's size divided by the operand's.
    """

    mode: str
    a: float
    scale: np.float32

    def taps(self, node: Node, positions: Array, axis: int) -> Taps:
        """Returns positions and weights for the elements of the result. `positions` are their positions along `axis` of
        the operand.
        """
        size, step = node.shape(0)[axis], _ONE / self.scale
        support = np.float32(2 if self.mode == "cubic" else 1) * max(step, _ONE)
        window = 2 * int(np.ceil(support)) + 1
        if window > _MOST_TAPS:
            node.unsupported(f"computes each element from {window} elements; the limit is {_MOST_TAPS}")
        found = np.zeros((len(positions), window), np.int64)
        weights = np.zeros((len(positions), window), np.float32)
        outside = bool(node.attribute("exclude_outside", 0))
        for each, index in enumerate(positions):
            center = _HALF + (np.float32(each) if step == 1 else index)
            first, own = self._weights(center, support, window, size, exclude_outside=outside)
            found[each] = np.clip(first + np.arange(window), 0, size - 1)
            weights[each, : len(own)] = own
        return [(found[:, tap], weights[:, tap]) for tap in range(window) if weights[:, tap].any()]

    def _weights(
        self, center: np.float32, support: np.float32, window: int, size: int, *, exclude_outside: bool
    ) -> tuple[int, Array]:
        """Returns the first position that is inside the operand, and the weights from that position on."""
        start = int(np.floor(center - support + _HALF))
        end = start + min(max(int(np.floor(center + support + _HALF)) - start, 0), window)
        inside = [min(max(each, 0), size) for each in (start, end)]
        if exclude_outside:
            start, end = inside
        step = _ONE / self.scale
        narrowed = _ONE / step if step >= 1 else _ONE
        offsets = np.arange(start, end).astype(np.float32) - center + _HALF
        weights = self._of(np.abs(offsets * narrowed))
        total = _ZERO
        for weight in weights:
            total = total + weight
        if not exclude_outside and inside[0] < inside[1]:  # the edge element represents positions outside
            count = end - start
            before, behind = (min(max(each, 0), count - 1) for each in (-start, end - size))
            for index in range(before):
                weights[before] += weights[index]
            for index in range(count - behind, count):
                weights[count - behind - 1] += weights[index]
            weights = weights[before:]
        weights = weights[: inside[1] - inside[0]]
        return inside[0], weights * (_ONE if total == 0 else _ONE / total)

    def _of(self, x: Array) -> Array:
        if self.mode == "linear":
            return np.where(x < 1, _ONE - x, _ZERO).astype(np.float32)
        a = np.float32(self.a)
        near = ((a + np.float32(2)) * x - (a + np.float32(3))) * x * x + _ONE
        far = (((x - np.float32(5)) * x + np.float32(8)) * x - np.float32(4)) * a
        return np.where(x < 1, near, np.where(x < 2, far, _ZERO)).astype(np.float32)


def resized(node: Node, taps: dict[int, Taps]) -> Value:
    """Resizes the float32 operand along each axis of `taps`. Each element of the result is a sum of the operand's
    elements at given positions, multiplied by their weights.
    """
    float32(node)
    x, rank = node.expr(0), len(node.shape(0))
    for axis in sorted(taps, reverse=True):
        total = None
        for positions, weights in taps[axis]:
            taken = node.emit(relax.op.take(x, node.literal(positions), axis, mode="clip"), "tap")
            factor = node.literal(weights.reshape(-1, *[1] * (rank - axis - 1)))
            part = node.emit(relax.op.multiply(taken, factor), "scaled")
            total = part if total is None else node.emit(relax.op.add(total, part), "total")
        x = total
    return node.emit(x)
