"""Declines kernels of a reference runtime whose results no formula reproduces."""

from __future__ import annotations

from typing import NoReturn

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array


class Unreproduced:
    """Declines an operation that the runtime computes with such a kernel."""

    def __init__(self, what: str, instead: str) -> None:
        """`what` describes the operation and the condition. `instead` is the name of a mode that defines the
        operation.
        """
        self._what, self._instead = what, instead
        self.summary = "none: such models are declined"

    def evaluate(self, operation: Operation, *_operands: Array) -> Array:
        self._decline(operation)

    def lower(self, operation: Operation, _builder: relax.BlockBuilder, *_operands: relax.Expr) -> relax.Expr:
        self._decline(operation)

    def _decline(self, operation: Operation) -> NoReturn:
        raise UnsupportedOperator(
            f"this numerics mode does not reproduce {self._what}",
            op=operation.name,
            hint=f"compile with --numerics {self._instead}",
        )
