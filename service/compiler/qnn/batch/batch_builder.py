"""The builder that the rules use to emit the values of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.batch.samples import Samples, batched_shape, located
from service.compiler.qnn.operation import IllTyped
from service.core.errors import UnsupportedOperator

Operand = Samples | Any  # or, if no input affects the operand, an expression that is the same for all samples


class BatchBuilder:
    """Emits the values of a batch.

    Attributes:
        batch: the number of samples.
        name: the name of the value that is being rewritten.
        values: maps each variable of the one-sample model to its value for the batch.
    """

    def __init__(self, builder: relax.BlockBuilder, batch: int) -> None:
        self.builder, self.batch, self.name = builder, batch, ""
        self.values: dict[relax.Var, Operand] = {}

    def operand(self, expr: relax.Expr) -> Operand:
        return self.values[expr] if isinstance(expr, relax.Var) else expr

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Binds a value of the batch, or an intermediate step of it.

        Raises:
            UnsupportedOperator: type inference rejects the operator for several samples.
        """
        try:
            return graph.emit(self.builder, expr, self.name)
        except IllTyped as exc:
            raise self.mixed(name_of(expr)) from exc

    def emit_value(self, call: relax.Call, shape: Sequence[int], axis: int, outer: int = 1) -> Samples:
        """Emits `call` as the result of an operator, and checks that it has the shape that the batch requires."""
        made = Samples(self.emit(call), tuple(shape), axis, outer)
        if graph.shape_of(made.value) != made.batched_shape(self.batch):
            raise self.mixed(name_of(call))
        return made

    def reshaped(self, x: relax.Expr, shape: Sequence[int]) -> relax.Expr:
        return x if graph.shape_of(x) == tuple(shape) else self.emit(relax.op.reshape(x, shape))

    def reshape_to(self, x: relax.Expr, shape: Sequence[int], before: int) -> Samples:
        """Reshapes `x`, which is `[before, batch, …]` in memory, into the value whose shape for one sample is
        `shape`.
        """
        position = located(shape, before)
        if position is None:
            raise self.mixed("reshape")
        axis, outer = position
        return Samples(self.reshaped(x, batched_shape(shape, axis, self.batch)), tuple(shape), axis, outer)

    def mixed(self, what: str) -> UnsupportedOperator:
        return UnsupportedOperator(
            f"cannot batch the model: {what} {self.name!r} mixes samples",
            op=what,
            tensor=self.name,
            hint="build the model for a batch of 1",
        )


def name_of(expr: relax.Expr) -> str:
    """Returns the operator's name for error messages."""
    name = str(expr.op.name) if isinstance(expr, relax.Call) else "the tensor"
    return name.removeprefix("relax.").removeprefix("qnn.")
