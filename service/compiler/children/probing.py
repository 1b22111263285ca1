"""Chooses inputs for the verification of an artifact, in addition to the fixed patterns of `core.verification.vectors`.

Small models are verified on hundreds of inputs, and large ones on the patterns alone. The inputs are drawn at random,
in rounds. The oracle computes each of them and records the special cases that every operator reaches: ties in its
rounding, both bounds of its storage type, the extremes of its accumulators, and the entries of a lookup table. Later
inputs are variations of inputs that reached a new case.

The choice depends only on the model and a seed, never on time, so equal builds choose equal inputs. The chosen inputs
are stored with the expected outputs, so that other machines can verify the artifact too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from service.compiler.qnn import coverage, graph, oracle
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.verification.vectors import MOST_PROBES, InputFill

# The time that computing all chosen inputs of a model may take, in the oracle and the slowest reference kernels
# together.
_BUDGET_S = 1.5
_CALL_S, _ELEMENT_S, _MAC_S = 1e-4, 4e-8, 1e-8  # the estimated time for each operator, output element and product
_FEWEST = 4  # if the budget allows fewer inputs than this, none are chosen
_MOST_BYTES = 2 << 20  # limit of all inputs and outputs together, which are stored with the artifact
_ROUND = 16  # the number of inputs that are drawn before the oracle runs
_WORDS = 256  # the number of values of an 8-bit type


def probe_count(module: tvm.IRModule, signature: ModelSignature) -> int:
    """Returns how many inputs to choose for a build of `module`; 0 for large models and for models that keep state."""
    if signature.states:
        return 0
    function = graph.main_of(module)
    macs = sum(coverage.macs_by_operator(function).values())
    calls = elements = 0
    for var, _ in graph.bindings(function):
        calls += 1
        elements += _elements(var)
    cost_s = calls * _CALL_S + elements * _ELEMENT_S + macs * _MAC_S
    size_bytes = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in (*signature.inputs, *signature.outputs))
    count = min(MOST_PROBES, int(_BUDGET_S / max(cost_s, 1e-9)), _MOST_BYTES // max(1, size_bytes))
    return count if count >= _FEWEST else 0


def _elements(var: tvm.relax.Var) -> int:
    try:
        return math.prod(graph.shape_of(var))
    except (AttributeError, TypeError):  # the value is a tuple or a shape
        return 0


@dataclass
class Reached:
    """The special cases of one operator that the inputs have reached so far.

    Attributes:
        ties: the number of rounded values that were exactly halfway between two integers.
        low, high: true if an output value was equal to the lower or the upper bound of its storage type.
        least, most: the smallest and the largest accumulator, or None if the operator has no accumulators.
        entries: for each of the 256 values of its 8-bit operand, true if the value occurred; None if the operator does
            not map each value separately, like a lookup table.
    """

    ties: int = 0
    low: bool = False
    high: bool = False
    least: int | None = None
    most: int | None = None
    entries: NDArray[np.bool_] | None = None


@dataclass
class Observer:
    """Records the special cases that each operator reaches while the oracle runs. It implements `oracle.Observe`.

    Attributes:
        reached: the cases reached so far, by the name of the operator's result.
        news: for each sample of the current round, the number of cases that no earlier sample reached.
    """

    reached: dict[str, Reached] = field(default_factory=dict)
    news: list[int] = field(default_factory=list)

    def __call__(self, name: str, operation: Operation, sample: int, operand: Any, result: Any, ties: int) -> None:
        if not isinstance(result, np.ndarray) or result.dtype.kind not in "iu" or not result.size:
            return
        before, news = self.reached.setdefault(name, Reached()), 0
        news += bool(ties) and not before.ties
        before.ties += ties
        low, high = int(result.min()), int(result.max())
        if (bounds := _bounds(operation)) is not None:
            is_low, is_high = low <= bounds[0], high >= bounds[1]
            news += (is_low and not before.low) + (is_high and not before.high)
            before.low, before.high = before.low or is_low, before.high or is_high
        elif result.dtype.itemsize >= 4:
            news += (before.least is None or low < before.least) + (before.most is None or high > before.most)
            before.least = low if before.least is None else min(low, before.least)
            before.most = high if before.most is None else max(high, before.most)
        if isinstance(operand, np.ndarray) and _maps_values(operation, operand, result):
            seen = np.zeros(_WORDS, np.bool_)
            seen[np.ascontiguousarray(operand).view(np.uint8)] = True
            entries = before.entries if before.entries is not None else np.zeros(_WORDS, np.bool_)
            news += int(np.count_nonzero(seen & ~entries))
            before.entries = entries | seen
        self.news[sample] += news

    def report(self) -> dict[str, Any]:
        """Returns counts of operators, and a sentence for the numerics report."""
        bounded = [each for each in self.reached.values() if each.least is None]
        tables = [each.entries for each in self.reached.values() if each.entries is not None]
        full = sum(bool(entries.all()) for entries in tables)
        ties, tied = sum(each.ties for each in self.reached.values()), sum(bool(r.ties) for r in self.reached.values())
        low, high = sum(each.low for each in bounded), sum(each.high for each in bounded)
        parts = [f"{ties:,} ties in {tied} of {len(bounded)} operators"]
        parts += [f"the lower bound in {low} and the upper in {high} of {len(bounded)}"]
        if tables:
            parts.append(f"all 256 entries of {full} of {len(tables)} tables")
        return {
            "operators": len(bounded),
            "ties": ties,
            "operators_with_ties": tied,
            "low": low,
            "high": high,
            "tables": len(tables),
            "full_tables": full,
            "text": ", ".join(parts) if bounded else "",
        }


def _bounds(operation: Operation) -> tuple[int, int] | None:
    """Returns the bounds of the storage type to which an operator rounds, or None if it does not round."""
    if "out_type" not in (operation.call.attrs or {}).keys():  # noqa: SIM118 (DictAttrs has no `in`)
        return None
    quantized = operation.quantized("out_type")
    return int(quantized.min), int(quantized.max)


def _maps_values(operation: Operation, operand: Array, result: Array) -> bool:
    """Returns true if each element of the result depends only on the corresponding element of an 8-bit operand, as with
    a lookup table.
    """
    variables = [arg for arg in operation.call.args if isinstance(arg, tvm.relax.Var)]
    return len(variables) == 1 and operand.dtype.itemsize == 1 and operand.shape == result.shape and operand.size > 0


def probe(
    module: tvm.IRModule,
    mode: Mode,
    signature: ModelSignature,
    count: int,
    patterns: Sequence[Sequence[Array]],
    observer: Observer,
) -> tuple[list[list[Array]], list[list[Array]]]:
    """Chooses `count` inputs, and runs the oracle on them.

    Args:
        patterns: inputs that were run with `observer` before. The first of the new inputs may be variations of these.

    Returns:
        The chosen inputs, and the outputs for each of them.
    """
    rng = np.random.Generator(np.random.PCG64(1))
    parents = [list(sample) for sample in patterns]
    inputs: list[list[Array]] = []
    outputs: list[list[Array]] = []
    while len(inputs) < count:
        number = min(_ROUND, count - len(inputs))
        drawn = [_drawn(signature.inputs, rng, len(inputs) + index, parents) for index in range(number)]
        observer.news = [0] * number
        outputs += oracle.run_all(module, mode, drawn, observer)
        parents += [sample for sample, news in zip(drawn, observer.news, strict=True) if news]
        inputs += drawn
    return inputs, outputs


def _drawn(
    specs: Sequence[TensorSpec], rng: np.random.Generator, number: int, parents: Sequence[Sequence[Array]]
) -> list[Array]:
    """Draws input number `number`. The remainder of `number` modulo 4 selects how: random values, every value of the
    type in turn, random values near the zero point, or one of `parents` with some values replaced by random ones.
    """
    way = number % 4
    if way == 3 and parents:
        parent = parents[int(rng.integers(len(parents)))]
        share = float(rng.choice([0.02, 0.1, 0.5]))
        drawn = [InputFill(spec, rng).random() for spec in specs]
        changed = [rng.random(value.shape) < share for value in parent]
        return [np.where(*each).astype(each[2].dtype) for each in zip(changed, drawn, parent, strict=True)]
    fills = [InputFill(spec, rng) for spec in specs]
    if way == 1:
        return [fill.walk() for fill in fills]
    return [fill.random() if way == 0 else fill.near() for fill in fills]


def arrays_of(inputs: Sequence[Sequence[Array]], outputs: Sequence[Sequence[Array]]) -> Mapping[str, Array]:
    """Returns the arrays of the report `core.artifacts.artifact.Report.PROBES`, by name.

    An input has the name `input.NUMBER.INDEX`, and an expected output the name `NUMBER.INDEX`.
    """
    given = {f"input.{number}.{index}": it for number, each in enumerate(inputs) for index, it in enumerate(each)}
    return given | {f"{number}.{index}": it for number, each in enumerate(outputs) for index, it in enumerate(each)}
