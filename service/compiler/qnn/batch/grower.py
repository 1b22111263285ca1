"""What rules write a batch's values with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.batch.samples import Samples, grown, located
from service.compiler.qnn.operation import IllTyped
from service.core.errors import UnsupportedOperator

Operand = Samples | Any  # where no input decides it, an expression that is the same for all samples


class Grower:
    """Emits values of several samples.

    Attributes:
        batch: how many samples there are.
        name: of the value that is being written.
        values: by the variables of the model of one sample.
    """

    def __init__(self, builder: relax.BlockBuilder, batch: int) -> None:
        self.builder, self.batch, self.name = builder, batch, ""
        self.values: dict[relax.Var, Operand] = {}

    def operand(self, expr: relax.Expr) -> Operand:
        return self.values[expr] if isinstance(expr, relax.Var) else expr

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Binds the value, or a part of it.

        Raises:
            UnsupportedOperator: its type inference refuses it for several samples.
        """
        try:
            return graph.emit(self.builder, expr, self.name)
        except IllTyped as exc:
            raise self.mixed(name_of(expr)) from exc

    def made(self, call: relax.Call, shape: Sequence[int], axis: int, outer: int = 1) -> Samples:
        """The value by one call, which has to make it as large as it has to be."""
        made = Samples(self.emit(call), tuple(shape), axis, outer)
        if graph.shape_of(made.value) != made.grown(self.batch):
            raise self.mixed(name_of(call))
        return made

    def reshaped(self, x: relax.Expr, shape: Sequence[int]) -> relax.Expr:
        return x if graph.shape_of(x) == tuple(shape) else self.emit(relax.op.reshape(x, shape))

    def laid(self, x: relax.Expr, shape: Sequence[int], before: int) -> Samples:
        """`x`, with its samples behind `before` parts, as the value: of `shape` for one sample."""
        place = located(shape, before)
        if place is None:
            raise self.mixed("reshape")
        axis, outer = place
        return Samples(self.reshaped(x, grown(shape, axis, self.batch)), tuple(shape), axis, outer)

    def mixed(self, what: str) -> UnsupportedOperator:
        return UnsupportedOperator(
            f"{what} {self.name!r} does not keep samples apart",
            op=what,
            tensor=self.name,
            hint="the model can be built for a batch of 1 only",
        )


def name_of(expr: relax.Expr) -> str:
    """What an error calls the operator."""
    name = str(expr.op.name) if isinstance(expr, relax.Call) else "the tensor"
    return name.removeprefix("relax.").removeprefix("qnn.")
