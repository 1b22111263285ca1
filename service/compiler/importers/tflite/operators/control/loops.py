"""WHILE, which is unrolled."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.tflite.model import called_by
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.control.branches import selected
from service.compiler.qnn.operation import value_of

_MOST_TURNS = 1 << 10  # if the condition is constant in each turn
_MOST_COMPUTED_TURNS = 1 << 7  # otherwise
_EXPORT = "export the model with a fixed number of turns, or cut it before the loop"


def while_(node: Node) -> list[relax.Expr]:
    """Converts WHILE by repeating its body until the condition is false.

    A condition that is computed from inputs must become constant after some turns, such as in `i < 10 and not done`.
    The body then runs as often as the constant part allows. The values of the loop change only in those turns in which
    all conditions so far were true.
    """
    condition, body = called_by(node.operator)
    values = node.exprs()  # after every turn so far, whatever its condition was
    results = values
    alive: relax.Expr | None = None
    for turn in range(_MOST_TURNS + 1):
        (holds,) = node.run(condition, values)
        known = value_of(holds)
        if known is not None and not known.all():
            return results
        if known is None:
            alive = holds if alive is None else _both(node, alive, holds)
        if turn >= (_MOST_TURNS if alive is None else _MOST_COMPUTED_TURNS):
            break
        values = node.run(body, values)
        results = values if alive is None else selected(node, alive, values, results)
    what = f"runs more than {_MOST_TURNS} turns, each of which would be compiled"
    if alive is not None:
        what = (
            "runs until a condition that is computed from the inputs is false; only loops that end after at most "
            f"{_MOST_COMPUTED_TURNS} turns, whatever the inputs are, can be compiled"
        )
    return node.unsupported(what, hint=_EXPORT)


def _both(node: Node, one: relax.Expr, other: relax.Expr) -> relax.Expr:
    scalars = [node.emit(relax.op.reshape(each, ()), "condition") for each in (one, other)]
    return node.emit(relax.op.logical_and(*scalars), "alive")
