"""The runtimes that an artifact's outputs were compared with, and the results, as its numerics report gives them.

A witness is another runtime that computed the same model on the same inputs. Outputs are compared with Octet's own
canonical form too: that decides whether an artifact is served, and it is named as what it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The overall result of a report."""

    EQUAL = "equal"  # another runtime ran, and every value was equal to its own
    DIFFERENT = "different"  # another runtime ran, and some value was not
    OWN_ONLY = "own_only"  # Octet's canonical form was all there was to compare with
    NOT_CHECKED = "not_checked"  # the artifact's code does not run here


@dataclass(frozen=True)
class Witness:
    """A runtime, and how it was asked.

    Attributes:
        name: as people call it.
        version: None where it is not installed, or is our own.
        options: what was set of it, by the runtime's own names.
        note: what sets it apart from another session of the same runtime; empty for the one that is the witness.
        is_own: whether it is Octet's canonical form.
    """

    name: str
    version: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    is_own: bool = False

    @property
    def title(self) -> str:
        """Name, version and options, in a line."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        named = f"{self.name} {self.version}" if self.version else self.name
        named = f"{named}, {self.note}" if self.note else named
        return f"{named} ({options})" if options else named


CANONICAL = Witness("Octet's own canonical form", options={"arithmetic": "int64 in NumPy"}, is_own=True)


@dataclass(frozen=True)
class Comparison:
    """An artifact's outputs beside a witness's.

    Attributes:
        inputs: which of the generated inputs were compared, by number.
        values: how many output values that were.
        equal: how many of them were the same, bit for bit.
        largest_difference: between two values; None where the outputs differ in shape or type, or by no finite number.
        largest_steps: the same over outputs of integers, where one is a quantization step; None without such outputs.
    """

    inputs: tuple[int, ...]
    values: int
    equal: int
    largest_difference: float | None
    largest_steps: int | None

    @property
    def is_equal(self) -> bool:
        return self.equal == self.values

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": list(self.inputs),
            "values": self.values,
            "equal": self.equal,
            "largest_difference": self.largest_difference,
            "largest_steps": self.largest_steps,
        }

    @staticmethod
    def from_json(comparison: Mapping[str, Any]) -> Comparison:
        largest, steps = comparison["largest_difference"], comparison["largest_steps"]
        return Comparison(
            tuple(map(int, comparison["inputs"])),
            int(comparison["values"]),
            int(comparison["equal"]),
            None if largest is None else float(largest),
            None if steps is None else int(steps),
        )


@dataclass(frozen=True)
class Statement:
    """The result of running a witness.

    Attributes:
        comparison: None where it did not run.
        reason: why it did not run.
        refused: number of an input that it did not accept -> its message.
        departure: where this runtime is known to depart from the mode's formulas in this model; empty where it is not.
    """

    witness: Witness
    comparison: Comparison | None = None
    reason: str = ""
    refused: Mapping[int, str] = field(default_factory=dict)
    departure: str = ""

    def to_json(self, kinds: Sequence[str]) -> dict[str, Any]:
        """
        Args:
            kinds: of the generated inputs.
        """
        witness, comparison = self.witness, self.comparison
        about = {
            "name": witness.name,
            "version": witness.version,
            "options": dict(witness.options),
            **({"note": witness.note} if witness.note else {}),
            "own": witness.is_own,
            "title": witness.title,
            "text": self.text,
            **({"departure": self.departure} if self.departure else {}),
        }
        if comparison is None:
            return {**about, "ran": False, "reason": self.reason}
        return {
            **about,
            "ran": True,
            "inputs": len(comparison.inputs),
            "kinds": dict(Counter(kinds[number] for number in comparison.inputs)),
            "refused": [{"kind": kinds[number], "message": message} for number, message in self.refused.items()],
            "values": comparison.values,
            "equal": comparison.equal,
            "equal_percent": percent(comparison.equal, comparison.values),
            "largest_difference": comparison.largest_difference,
            "largest_steps": comparison.largest_steps,
        }

    @property
    def text(self) -> str:
        """The result as text, without the witness's name: "all 80 values from 8 inputs are equal"."""
        if self.comparison is None:
            return self.reason
        departure = f"; {self.departure}" if self.departure and not self.comparison.is_equal else ""
        return _compared(self.comparison) + _refused(self.refused) + departure


def report(
    statements: Sequence[Statement], sessions: Sequence[Statement], kinds: Sequence[str], no_witness: str
) -> dict[str, Any]:
    """The part of a numerics report that says what was compared.

    Args:
        statements: Octet's canonical form first, then the other runtimes.
        sessions: the same runtimes, set otherwise: told for information.
        kinds: of the generated inputs, of as many as there are at most.
        no_witness: why no other runtime is among `statements`, if none is.

    Returns:
        `verified`: whether every value equalled the canonical form's; `outcome` and `summary`, a sentence; `reference`,
        the runtime that ran, or None; `inputs`, how many of which kind; `witnesses` and `other_sessions`.
    """
    own, *others = statements
    ran = next((statement for statement in others if statement.comparison is not None), None)
    return {
        "verified": own.comparison is not None and own.comparison.is_equal,
        "outcome": _outcome(ran),
        "summary": _summary(own, ran, others, no_witness),
        "reference": ran.witness.title if ran else None,
        "inputs": _inputs(own, kinds),
        "witnesses": [statement.to_json(kinds) for statement in statements],
        "other_sessions": [statement.to_json(kinds) for statement in sessions],
    }


def not_checked(reason: str) -> dict[str, Any]:
    """As `report`, of an artifact that was not run."""
    return {
        "verified": False,
        "reason": reason,
        "outcome": Outcome.NOT_CHECKED,
        "summary": f"not checked: {reason}",
        "reference": None,
        "witnesses": [],
        "other_sessions": [],
    }


def float_share(coverage: Mapping[str, Any]) -> dict[str, Any]:
    """The floating-point operators of a coverage report, without the conversions at the model's ends.

    Returns:
        `operators`, each with its multiply-accumulates and the reason; `macs_percent`, their share; `text`. A report
        that came with an artifact may not say so.
    """
    try:
        return _float_share(coverage)
    except (LookupError, TypeError, AttributeError):
        return {"operators": [], "macs_percent": None, "text": "not known"}


def _float_share(coverage: Mapping[str, Any]) -> dict[str, Any]:
    operators = [
        {name: each[name] for name in ("op", "macs", "reason")}
        for each in coverage["floating"]
        if not each.get("boundary")
    ]
    in_float, whole = coverage["macs"] - coverage["integer_macs"], coverage["macs"]
    share = 100 - percent(whole - in_float, whole)
    count = sum(each.get("operators", 1) for each in coverage["floating"] if not each.get("boundary"))
    text = f"{_counted(count, 'operator')} in float, {share:.4g} % of the multiply-accumulates"
    return {"operators": operators, "macs_percent": share, "text": text if operators else "none"}


def percent(part: int, whole: int) -> float:
    """In hundredths, rounded down: 100 only of the whole."""
    return 100.0 if part == whole else math.floor(10_000 * part / whole) / 100


def _inputs(own: Statement, kinds: Sequence[str]) -> dict[str, Any]:
    numbers = own.comparison.inputs if own.comparison else ()
    return {"count": len(numbers), "kinds": dict(Counter(kinds[number] for number in numbers))}


def _outcome(ran: Statement | None) -> Outcome:
    if ran is None or ran.comparison is None:
        return Outcome.OWN_ONLY
    return Outcome.EQUAL if ran.comparison.is_equal else Outcome.DIFFERENT


def _summary(own: Statement, ran: Statement | None, others: Sequence[Statement], no_witness: str) -> str:
    if ran is not None:
        why = f": {next(iter(ran.refused.values()))}" if ran.refused else ""
        return f"checked against {ran.witness.title}: {ran.text}{why}"
    reasons = [f"{statement.witness.name} {statement.reason}" for statement in others] or [no_witness]
    return f"checked against {own.witness.name} only: {own.text}; {'; '.join(reasons)}"


def _compared(comparison: Comparison) -> str:
    values = f"{comparison.values:,} values from {_counted(len(comparison.inputs), 'input')}"
    if comparison.is_equal:
        return f"all {values} are equal"
    if comparison.largest_difference is None:
        off = "in shape or type, or by no finite number"
    elif comparison.largest_difference == comparison.largest_steps:
        off = f"by at most {_counted(comparison.largest_steps, 'step')}"
    else:
        off = f"by at most {comparison.largest_difference:g}"
    share = 100 - percent(comparison.equal, comparison.values)
    return f"{comparison.values - comparison.equal:,} of {values} differ ({share:.4g} %), {off}"


def _refused(refused: Mapping[int, str]) -> str:
    return f"; it refused {_counted(len(refused), 'other input')}" if refused else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
