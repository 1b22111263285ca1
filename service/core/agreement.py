"""Whether a build agrees with the runtime that its numerics mode names: the only place where that is decided.

`decide` compares outputs with what the mode documents. A build that differs by more than that is `different`: it is not
served, and every command that meets it ends with `service.cli.output.DIFFERENT`, unless whoever requested the build
accepted differences (`core.options.ACCEPT`). See docs/adr/0061-different-builds.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from service.core.build import Stage
from service.core.errors import Different

ACCEPT_HINT = "octet compile and octet push serve it with --accept-differences; see docs/how-to/reports.md"
# The largest difference of a real output, as a share of its range, that every mode documents: real functions and sums
# are computed to within a few units in the last place, in an order of their own. 2**-24 is the rounding of one float32
# operation; sums of 4,096 products in another order, 20 layers deep, stay below this. One quantization step of 8 bits
# is 40 times as much.
REAL_TOLERANCE = 1e-4


class Outcome(StrEnum):
    """The overall result of a numerics report."""

    EQUAL = "equal"  # another runtime ran, and every value was equal to its own
    DOCUMENTED = "documented"  # another runtime ran, and all differences are within what the mode documents
    DIFFERENT = "different"  # another runtime ran, and some difference is not
    OWN_ONLY = "own_only"  # Octet's canonical form was all there was to compare with
    NOT_CHECKED = "not_checked"  # the artifact's code does not run here


@dataclass(frozen=True)
class OutputComparison:
    """One output of a model, compared over all inputs.

    Attributes:
        values: the number of values compared.
        equal: the number of equal ones.
        is_real: True for floating-point outputs.
        largest_difference: between two values; None if the outputs differ in shape or type, or if a NaN or an infinity
            stands beside another value.
        range: the distance between the least and the largest finite expected value, zero included, of a real output; 0
            of integers.
    """

    values: int = 0
    equal: int = 0
    is_real: bool = False
    largest_difference: float | None = 0.0
    range: float = 0.0

    @property
    def is_equal(self) -> bool:
        return self.equal == self.values

    def joined(self, other: OutputComparison) -> OutputComparison:
        """Of the inputs of both. The range is the larger one: each of them holds zero."""
        found = self.largest_difference, other.largest_difference
        return OutputComparison(
            self.values + other.values,
            self.equal + other.equal,
            self.is_real,
            None if None in found else max(each for each in found if each is not None),
            max(self.range, other.range),
        )

    @property
    def relative_difference(self) -> float | None:
        """The largest difference of a real output as a share of its range; None if there is no such number."""
        if self.largest_difference == 0:
            return 0.0
        return self.largest_difference / self.range if self.largest_difference and self.is_real and self.range else None

    def to_json(self) -> dict[str, Any]:
        return {
            "values": self.values,
            "equal": self.equal,
            "is_real": self.is_real,
            "largest_difference": self.largest_difference,
            "range": self.range,
        }

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> OutputComparison:
        """
        Raises:
            LookupError, TypeError, ValueError: `said` is not what `to_json` returns.
        """
        values, equal, largest = int(said["values"]), int(said["equal"]), said["largest_difference"]
        if not 0 <= equal <= values:
            raise ValueError(f"{equal} of {values} values cannot be equal")
        largest = None if largest is None else float(largest)
        return OutputComparison(values, equal, bool(said["is_real"]), largest, float(said["range"]))


@dataclass(frozen=True)
class Comparison:
    """An artifact's outputs beside a witness's.

    Attributes:
        inputs: the numbers of the generated inputs that were compared.
        outputs: in the signature's order.
    """

    inputs: tuple[int, ...]
    outputs: tuple[OutputComparison, ...]

    @property
    def values(self) -> int:
        return sum(output.values for output in self.outputs)

    @property
    def equal(self) -> int:
        return sum(output.equal for output in self.outputs)

    @property
    def is_equal(self) -> bool:
        return self.equal == self.values

    @property
    def largest_difference(self) -> float | None:
        """Between two values; None as in `OutputComparison`."""
        found = [output.largest_difference for output in self.outputs]
        return None if None in found else max((each for each in found if each is not None), default=0.0)

    @property
    def largest_steps(self) -> int | None:
        """The same over outputs of integers, where one is a quantization step; None without such outputs."""
        found = [output.largest_difference for output in self.outputs if not output.is_real]
        return max((int(each) for each in found if each is not None), default=None)

    @property
    def relative_difference(self) -> float | None:
        """The largest over real outputs, as a share of the output's range; None without such a number."""
        found = [output.relative_difference for output in self.outputs if output.is_real]
        return None if None in found else max((each for each in found if each is not None), default=None)

    def joined(self, other: Comparison, first: int) -> Comparison:
        """Of the inputs of both, those of `other` numbered from `first` on."""
        if not other.inputs:
            return self
        if not self.inputs:
            return Comparison(tuple(first + number for number in other.inputs), other.outputs)
        outputs = tuple(one.joined(two) for one, two in zip(self.outputs, other.outputs, strict=True))
        return Comparison((*self.inputs, *(first + number for number in other.inputs)), outputs)

    def to_json(self) -> dict[str, Any]:
        return {"inputs": list(self.inputs), "outputs": [output.to_json() for output in self.outputs]}

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Comparison:
        """
        Raises:
            LookupError, TypeError, ValueError: `said` is not what `to_json` returns.
        """
        outputs = tuple(OutputComparison.from_json(each) for each in said["outputs"])
        return Comparison(tuple(map(int, said["inputs"])), outputs)


@dataclass(frozen=True)
class Deviation:
    """A documented difference between a mode's formula of an operator and the runtime that the mode names.

    Attributes:
        operator: as in the mode's table of formulas.
        sentence: what the runtime does and Octet does not.
        bound_steps: by how many quantization steps the operator's output differs at most; None if there is no bound.
        bound_relative: by what share of its range a real output of the model may differ.
        layers: how often the operator occurs in the model in the form that the deviation is about.
    """

    operator: str
    sentence: str
    bound_steps: int | None
    bound_relative: float = 0.0
    layers: int = 1

    def of_layers(self, layers: int) -> Deviation:
        return replace(self, layers=layers)

    @property
    def text(self) -> str:
        """One sentence about this model."""
        layers = f"{self.layers} layer{'' if self.layers == 1 else 's'}"
        bound = (
            "by no bounded number of steps"
            if self.bound_steps is None
            else f"by at most {self.bound_steps} step{'' if self.bound_steps == 1 else 's'}"
        )
        return f"{self.operator} ({layers}, {bound}): {self.sentence}"

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "sentence": self.sentence,
            "bound_steps": self.bound_steps,
            "bound_relative": self.bound_relative,
            "layers": self.layers,
        }

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Deviation:
        """
        Raises:
            LookupError, TypeError, ValueError: `said` is not what `to_json` returns.
        """
        bound = said["bound_steps"]
        return Deviation(
            str(said["operator"]),
            str(said["sentence"]),
            None if bound is None else int(bound),
            float(said["bound_relative"]),
            int(said["layers"]),
        )


def decide(comparison: Comparison, deviations: Sequence[Deviation] = ()) -> Outcome:
    """The outcome of comparing a build with the runtime that its mode names.

    Args:
        deviations: those that the mode documents for operators of this model.
    """
    if comparison.is_equal:
        return Outcome.EQUAL
    documented = all(output.is_equal or _is_documented(output, deviations) for output in comparison.outputs)
    return Outcome.DOCUMENTED if documented else Outcome.DIFFERENT


def _is_documented(output: OutputComparison, deviations: Sequence[Deviation]) -> bool:
    largest, relative = output.largest_difference, output.relative_difference
    if largest is None:
        return False
    bounds = [each.bound_steps for each in deviations]
    if None in bounds:
        return True
    if output.is_real:
        tolerance = max([REAL_TOLERANCE, *(each.bound_relative for each in deviations)])
        return relative is not None and relative <= tolerance
    return largest <= max((each or 0 for each in bounds), default=0)


def may_serve(report: Mapping[str, Any]) -> bool:
    """True if the numerics report of an artifact says that it was checked where it was built, and may be served.

    A report of an earlier release has `verified` alone.
    """
    return report.get("verified") is True or report.get("accepted") is True


def is_different(report: Mapping[str, Any]) -> bool:
    """True if the build of a numerics report differs from its reference, and nobody accepted that."""
    return report.get("outcome") == Outcome.DIFFERENT and not may_serve(report)


def different_from(report: Mapping[str, Any]) -> Different | None:
    """The error that a build with this numerics report ends with; None unless `is_different`."""
    if not is_different(report):
        return None
    return Different(str(report.get("summary", "")) or None, stage=Stage.VERIFY, hint=ACCEPT_HINT)


def carried_over(report: Mapping[str, Any], earlier: Mapping[str, Any], *, accepts: bool = False) -> dict[str, Any]:
    """`report` of an artifact that another machine ran, with the difference that its build found.

    Args:
        report: says how the artifact's outputs compare with those that came with it.
        earlier: the numerics report that its build attached; empty if there is none.
        accepts: True if whoever sent the artifact accepts the difference.
    """
    is_accepted = accepts or earlier.get("accepted") is True
    if not (is_different(earlier) or is_accepted) or earlier.get("outcome") != Outcome.DIFFERENT:
        return dict(report)
    summary = f"{report['summary']}; where it was compiled: {earlier.get('summary', 'it differed from its reference')}"
    accepted = {"accepted": True} if is_accepted and report.get("exact") is True else {}
    return {**report, **accepted, "outcome": Outcome.DIFFERENT, "verified": False, "summary": summary}
