"""Finds chains of LSTM steps. Importers unroll LSTMs into such chains, and one kernel can compute a whole chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.kernels.group import LstmStep, shape_of
from service.compiler.qnn.operation import Operation, value_of

_SLICE = "relax.strided_slice"


@dataclass(frozen=True)
class Step:
    """One time step of an LSTM.

    Attributes:
        sums: the product of the hidden state and the recurrent weights (`qnn.dense`).
        gates: `sums`, rescaled and added to `seen`.
        cell, hidden: the next cell state and hidden state.
        seen: the input's contribution to the gates.
    """

    sums: relax.Var
    gates: relax.Var
    cell: relax.Var
    hidden: relax.Var
    seen: relax.Var
    operators: LstmStep

    @property
    def before(self) -> tuple[relax.Var, relax.Var]:
        """The hidden state and the cell state that the step reads."""
        return self.operators.dense.call.args[0], self.operators.update.call.args[1]

    def same(self, other: Step) -> bool:
        """Returns true if both steps have the same weights and parameters."""
        pairs = zip(self._operations, other._operations, strict=True)
        alike = all(str(mine.call.attrs) == str(theirs.call.attrs) for mine, theirs in pairs)
        operands = zip(*(step.operators.dense.call.args[1:] for step in (self, other)), strict=True)
        return alike and all(_equal(mine, theirs) for mine, theirs in operands)

    @property
    def _operations(self) -> tuple[Operation, ...]:
        own = self.operators
        return own.dense, own.rescale, own.update, own.output


@dataclass(frozen=True)
class Recurrent:
    """Consecutive steps of an LSTM.

    Attributes:
        seen: the input's contributions to the gates, `[T * N, gates * C] int16`.
        inside: the variables that nothing outside of the steps reads.
        joined: the concatenation of the hidden states of all steps in order, if there is one.
    """

    steps: tuple[Step, ...]
    seen: relax.Var
    inside: frozenset[relax.Var]
    joined: relax.Var | None

    @property
    def name(self) -> str:
        """The LSTM's name in the model."""
        return str((self.steps[-1].hidden if self.joined is None else self.joined).name)

    @property
    def variables(self) -> frozenset[relax.Var]:
        """All variables that the steps compute."""
        joined = {self.joined} if self.joined is not None else set()
        return self.inside | {step.hidden for step in self.steps} | joined


def sequences(
    bindings: Sequence[tuple[relax.Var, relax.Expr]],
    operations: Mapping[relax.Var, Operation],
    uses: Counter[relax.Var],
) -> list[Recurrent]:
    """Returns the LSTM sequences of a model.

    If a chain cannot be computed as a whole (see `_sequence`), each of its steps becomes a separate sequence.
    """
    steps = {step.before: step for var in operations if (step := _step(var, operations)) is not None}
    later = {(step.hidden, step.cell) for step in steps.values()}
    values = dict(bindings)
    found = []
    for before, head in steps.items():
        if before in later:
            continue
        chain = [head]
        while (following := steps.get((chain[-1].hidden, chain[-1].cell))) is not None and following.same(head):
            chain.append(following)
        whole = _sequence(chain, values, uses)
        alone = [_sequence([step], values, uses) for step in chain] if whole is None else [whole]
        found += [sequence for sequence in alone if sequence is not None]
    return found


def _step(var: relax.Var, operations: Mapping[relax.Var, Operation]) -> Step | None:
    """Returns the step that computes the hidden state `var`, or None if no step does."""
    output = operations[var]
    if output.name != "qnn.lstm_output":
        return None
    gates, cell = output.call.args
    update, rescale = operations.get(cell), operations.get(gates)
    if update is None or update.name != "qnn.lstm_cell" or not update.call.args[0].same_as(gates):
        return None
    if rescale is None or rescale.name != "qnn.rescale" or len(rescale.call.args) != 2:
        return None
    sums, seen = rescale.call.args
    dense = operations.get(sums)
    if dense is None or dense.name != "qnn.dense" or not isinstance(seen, relax.Var):
        return None
    states = dense.call.args[0], update.call.args[1]
    if not all(isinstance(state, relax.Var) for state in states):
        return None
    return Step(sums, gates, cell, var, seen, LstmStep(dense, rescale, update, output))


def _sequence(chain: list[Step], values: Mapping[relax.Var, relax.Expr], uses: Counter[relax.Var]) -> Recurrent | None:
    """Returns the chain as one sequence, or None.

    The steps must read one tensor row by row, and nothing outside of the chain may read its inner variables.
    """
    batch = shape_of(chain[0].cell)[0]
    whole, slices = chain[0].seen, set()
    if len(chain) > 1:
        for index, step in enumerate(chain):
            value = values.get(step.seen)
            if not _rows(value, index * batch, (index + 1) * batch) or uses[step.seen] != 1:
                return None
            slices.add(step.seen)
        whole = values[chain[0].seen].args[0]
        if any(not values[step.seen].args[0].same_as(whole) for step in chain):
            return None
    if shape_of(whole)[0] != len(chain) * batch:
        return None
    if any(uses[step.sums] != 1 or uses[step.gates] != 2 for step in chain):
        return None
    if any(uses[step.cell] != 2 for step in chain[:-1]):
        return None
    inside = slices | {var for step in chain for var in (step.sums, step.gates, step.cell)}
    joined, reshaped = _find_concatenation(chain, values, uses)
    return Recurrent(tuple(chain), whole, frozenset(inside | reshaped), joined)


def _equal(mine: relax.Expr, theirs: relax.Expr) -> bool:
    """Returns true if both are constants with equal values."""
    one, other = value_of(mine), value_of(theirs)
    return one is not None and other is not None and np.array_equal(one, other)


def _rows(value: relax.Expr | None, first: int, end: int) -> bool:
    """Returns true if `value` is the slice of the rows `first` to `end` of a matrix."""
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != _SLICE or len(value.args) != 4:
        return False
    return [[int(field.value) for field in arg.fields] for arg in value.args[1:]] == [[0], [first], [end]]


def _find_concatenation(
    chain: list[Step], values: Mapping[relax.Var, relax.Expr], uses: Counter[relax.Var]
) -> tuple[relax.Var | None, set[relax.Var]]:
    """Returns the concatenation of the hidden states in the order in which the kernel writes them, and its parts."""
    batch, _ = shape_of(chain[0].cell)
    owners = {step.hidden: index for index, step in enumerate(chain)}
    for var, value in values.items():
        if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.concat":
            continue
        views = list(value.args[0].fields) if isinstance(value.args[0], relax.Tuple) else []
        order = [owners.get(_operand_of_reshape(values.get(view))) for view in views]
        axis = 1 if batch == 1 and int(value.attrs.axis) == 1 else 0
        if order == list(range(len(chain))) and int(value.attrs.axis) == axis and shape_of(views[0])[axis] == 1:
            return var, {view for view in views if uses[view] == 1}
    return None, set()


def _operand_of_reshape(value: relax.Expr | None) -> relax.Expr | None:
    """Returns the operand of a reshape, or None if `value` is not a reshape."""
    is_reshape = isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.reshape"
    return value.args[0] if value is not None and is_reshape else None
