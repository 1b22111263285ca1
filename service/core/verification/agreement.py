"""Decides whether a build agrees with the reference runtime of its numerics mode. No other module decides this.

`decide` compares the differences of the outputs with those that the mode documents. A build with larger differences is
`different`. Such a build is not served, and every command that finds it exits with the status
`service.cli.output.DIFFERENT`, unless the request for the build accepted differences (`core.builds.options.ACCEPT`).
See docs/adr/0061-different-builds.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from service.core.builds.build import Stage
from service.core.errors import Different

ACCEPT_HINT = "octet compile and octet push serve it with --accept-differences; see docs/how-to/reports.md"
# Every mode accepts a difference of this share of a floating-point output's range, because two runtimes add in
# different orders and compute functions such as exp to within a few units in the last place. One float32 operation
# rounds by 2**-24; the differences from adding 4,096 products in different orders, in each of 20 layers, stay below
# this tolerance. One 8-bit quantization step is 40 times as large.
REAL_TOLERANCE = 1e-4
# An artifact must give the bits of Octet's canonical form. Outputs of float64 are the exception: the functions of the C
# library and of NumPy differ in the last place. The tolerance is a share of the output's range.
DOUBLE_TOLERANCE = 2.0**-36


class Outcome(StrEnum):
    """The overall result of a numerics report."""

    EQUAL = "equal"  # the reference runtime ran, and all values are equal
    DOCUMENTED = "documented"  # the reference runtime ran, and all differences are within those that the mode documents
    DIFFERENT = "different"  # the reference runtime ran, and a difference is larger than the mode documents
    OWN_ONLY = "own_only"  # no other runtime ran: the outputs were compared with Octet's canonical form alone
    NOT_CHECKED = "not_checked"  # the artifact's code cannot run on this machine


def _largest(differences: Sequence[float | None], default: float | None) -> float | None:
    """Returns the largest of `differences`, None if one of them is None, or `default` if there are none."""
    known = [each for each in differences if each is not None]
    return None if len(known) < len(differences) else max(known, default=default)


@dataclass(frozen=True)
class OutputComparison:
    """The comparison of one output of a model with its expected values, over all inputs.

    Attributes:
        values: the number of values that were compared.
        equal: the number of values that are equal.
        is_real: True for a floating-point output.
        largest_difference: the largest difference between two values. None if the outputs differ in shape or type, or
            if a NaN or an infinity was compared with another value.
        range: for a floating-point output, the distance between the least and the largest of the finite expected values
            and zero; 0 for an integer output.
        is_double: True for an output of float64.
    """

    values: int = 0
    equal: int = 0
    is_real: bool = False
    largest_difference: float | None = 0.0
    range: float = 0.0
    is_double: bool = False

    @property
    def is_reproduced(self) -> bool:
        """True if all values are equal, or almost equal in float64."""
        relative = self.relative_difference
        return self.is_equal or (self.is_double and relative is not None and relative <= DOUBLE_TOLERANCE)

    @property
    def is_equal(self) -> bool:
        return self.equal == self.values

    def merge(self, other: OutputComparison) -> OutputComparison:
        """Returns the comparison over the inputs of both. Both ranges include zero, and the larger range is taken."""
        return OutputComparison(
            self.values + other.values,
            self.equal + other.equal,
            self.is_real,
            _largest([self.largest_difference, other.largest_difference], 0.0),
            max(self.range, other.range),
            self.is_double,
        )

    @property
    def relative_difference(self) -> float | None:
        """The largest difference of a floating-point output as a share of its range.

        The share is 0 if the largest difference is 0. It is None for an integer output with differences, for a range of
        0, and if `largest_difference` is None.
        """
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
            **({"is_double": True} if self.is_double else {}),
        }

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> OutputComparison:
        """Parses the result of `to_json`.

        Raises:
            LookupError, TypeError, ValueError: `members` is not of that form.
        """
        values, equal, largest = int(members["values"]), int(members["equal"]), members["largest_difference"]
        if not 0 <= equal <= values:
            raise ValueError(f"{equal} of {values} values cannot be equal")
        largest = None if largest is None else float(largest)
        is_double = members.get("is_double") is True
        return OutputComparison(values, equal, bool(members["is_real"]), largest, float(members["range"]), is_double)


@dataclass(frozen=True)
class Comparison:
    """The comparison of an artifact's outputs with those of one other implementation of the model.

    Attributes:
        inputs: the indices of the generated inputs that were compared.
        outputs: the comparison of each output, in the signature's order.
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
        """The largest difference over all outputs; None if the largest difference of one output is None, see
        `OutputComparison`.
        """
        return _largest([output.largest_difference for output in self.outputs], 0.0)

    @property
    def largest_steps(self) -> int | None:
        """The largest difference of integer outputs, in quantization steps; None if no integer output has a
        quantization step.
        """
        found = [output.largest_difference for output in self.outputs if not output.is_real]
        return max((int(each) for each in found if each is not None), default=None)

    @property
    def relative_difference(self) -> float | None:
        """The largest `OutputComparison.relative_difference` of the floating-point outputs.

        None without such an output, or if the relative difference of one of them is None.
        """
        return _largest([output.relative_difference for output in self.outputs if output.is_real], None)

    def merge(self, other: Comparison, first: int) -> Comparison:
        """Returns the comparison over the inputs of both; the inputs of `other` are numbered from `first` on."""
        if not other.inputs:
            return self
        if not self.inputs:
            return Comparison(tuple(first + number for number in other.inputs), other.outputs)
        outputs = tuple(one.merge(two) for one, two in zip(self.outputs, other.outputs, strict=True))
        return Comparison((*self.inputs, *(first + number for number in other.inputs)), outputs)

    def to_json(self) -> dict[str, Any]:
        return {"inputs": list(self.inputs), "outputs": [output.to_json() for output in self.outputs]}

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> Comparison:
        """Parses the result of `to_json`.

        Raises:
            LookupError, TypeError, ValueError: `members` is not of that form.
        """
        outputs = tuple(OutputComparison.from_json(each) for each in members["outputs"])
        return Comparison(tuple(map(int, members["inputs"])), outputs)


@dataclass(frozen=True)
class Deviation:
    """A documented difference between a mode's formula of an operator and the reference runtime of the mode.

    Attributes:
        operator: the operator, as in the mode's table of formulas.
        sentence: what the runtime does differently.
        bound_steps: the largest difference of the operator's output, in quantization steps; None if it has no bound.
        bound_relative: the largest difference of a floating-point output of the model, as a share of its range.
        layers: the number of layers of the model that the deviation applies to.
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
        """A sentence that describes the deviation, with the number of layers of the model that it applies to."""
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
    def from_json(members: Mapping[str, Any]) -> Deviation:
        """Parses the result of `to_json`.

        Raises:
            LookupError, TypeError, ValueError: `members` is not of that form.
        """
        bound = members["bound_steps"]
        return Deviation(
            str(members["operator"]),
            str(members["sentence"]),
            None if bound is None else int(bound),
            float(members["bound_relative"]),
            int(members["layers"]),
        )


def decide(comparison: Comparison, deviations: Sequence[Deviation] = ()) -> Outcome:
    """Returns the outcome of comparing a build with the reference runtime of its mode.

    Args:
        deviations: the deviations that the mode documents for the operators of this model.
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
    """Returns true if an artifact with this numerics report may be served: it was verified, or its differences were
    accepted.

    Reports of earlier releases contain `verified` alone.
    """
    return report.get("verified") is True or report.get("accepted") is True


def is_different(report: Mapping[str, Any]) -> bool:
    """Returns true if a build with this numerics report differs from its reference, and the difference was not
    accepted.
    """
    return report.get("outcome") == Outcome.DIFFERENT and not may_serve(report)


def different_from(report: Mapping[str, Any]) -> Different | None:
    """Returns the error that a build with this numerics report ends with; None unless `is_different`."""
    if not is_different(report):
        return None
    return Different(str(report.get("summary", "")) or None, stage=Stage.VERIFY, hint=ACCEPT_HINT)


def keep_build_difference(
    report: Mapping[str, Any], earlier: Mapping[str, Any], *, accepts: bool = False
) -> dict[str, Any]:
    """Returns `report`, the check of an artifact that was built elsewhere, with the difference that its build found.

    Args:
        report: the result of comparing the artifact's outputs with the expected outputs that came with it.
        earlier: the numerics report that the build attached; empty if there is none.
        accepts: True if the request that pushed the artifact accepts the difference.
    """
    is_accepted = accepts or earlier.get("accepted") is True
    if not (is_different(earlier) or is_accepted) or earlier.get("outcome") != Outcome.DIFFERENT:
        return dict(report)
    summary = f"{report['summary']}; where it was compiled: {earlier.get('summary', 'it differed from its reference')}"
    accepted = {"accepted": True} if is_accepted and report.get("exact") is True else {}
    return {**report, **accepted, "outcome": Outcome.DIFFERENT, "verified": False, "summary": summary}
