"""The lengths of the sequences of a recurrent layer, if its samples have different lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node
from service.compiler.importers.real import Real
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

LENGTHS = 4  # the input `sequence_lens`


@dataclass(frozen=True)
class Lengths:
    """The lengths of all samples.

    Attributes:
        made: the arithmetic with which values are emitted.
        longest: the number of steps that are computed.
        constant: the lengths `[batch]`, if the file contains them.
        computed: the lengths `[batch]` int32, if they are computed at run time.
    """

    made: Real
    longest: int
    constant: Array | None = None
    computed: relax.Expr | None = None

    def reverse(self, rows: relax.Expr) -> relax.Expr:
        """Returns the rows `[steps * batch, …]` of all steps with the steps of each sample in reverse order, within its
        constant length. Two applications cancel.
        """
        lengths = np.zeros(0, np.int64) if self.constant is None else self.constant.astype(np.int64)
        steps, samples = np.arange(self.longest)[:, np.newaxis], np.arange(len(lengths))
        order = np.where(steps < lengths, lengths - 1 - steps, steps) * len(lengths) + samples
        return self.made(relax.op.take(rows, relax.const(order.reshape(-1)), 0, mode="clip"))

    def selected(self, step: int, x: relax.Expr, other: relax.Expr | None) -> relax.Expr:
        """Returns `x` `[batch, size]` for the samples that have this step, and `other` for the others; None is 0."""
        rows = shape_of(x)[0]
        if self.computed is not None:
            limit = relax.const(np.array(step, np.int32))
            has_step = self.made(relax.op.greater(self.made(relax.op.reshape(self.computed, (rows, 1))), limit))
        elif self.constant is not None and (self.constant <= step).any():
            has_step = relax.const((self.constant > step).reshape(rows, 1))
        else:
            return x
        return self.made.apply(relax.op.where, has_step, x, 0.0 if other is None else other)


def lengths_of(node: Node, made: Real, steps: int, batch: int) -> Lengths:
    """Returns the lengths in the input `sequence_lens`."""
    if not node.has(LENGTHS):
        return Lengths(made, steps)
    shape = node.shape(LENGTHS)
    fits = shape == (batch,) and node.dtype(LENGTHS) == "int32"
    node.require(fits, f"has the lengths {node.dtype(LENGTHS)} {list(shape)} for {batch} samples", node.name(LENGTHS))
    data = node.constant_data(LENGTHS)
    if data is None:
        return Lengths(made, steps, computed=node.expr(LENGTHS))
    node.require(bool(((data >= 0) & (data <= steps)).all()), f"has lengths of more than {steps} steps")
    return Lengths(made, max(1, int(data.max(initial=0))), constant=data)
