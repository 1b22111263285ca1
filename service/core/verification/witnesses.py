"""Witnesses: the runtimes that an artifact's outputs were compared with, and the results for the numerics report.

A witness is a runtime other than Octet's that computed the same model on the same inputs. Outputs are also compared
with Octet's own canonical form. An artifact is served only if its outputs equal those of the canonical form. The report
does not count the canonical form as another runtime.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.core.verification.agreement import REAL_TOLERANCE, Comparison, Deviation, Outcome, OutputComparison, decide


@dataclass(frozen=True)
class Witness:
    """A runtime and the session options it ran with.

    Attributes:
        name: the runtime's common name.
        version: the runtime's version; None if the runtime is not installed, and for Octet's canonical form.
        options: the options that were set, by the runtime's own names.
        note: how this session differs from the one that decides; empty for the session that decides.
        is_own: True for Octet's canonical form.
    """

    name: str
    version: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    is_own: bool = False

    @property
    def title(self) -> str:
        """Name, version and options in one line."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        named = f"{self.name} {self.version}" if self.version else self.name
        named = f"{named}, {self.note}" if self.note else named
        return f"{named} ({options})" if options else named


CANONICAL = Witness("Octet's own canonical form", options={"arithmetic": "int64 in NumPy"}, is_own=True)


@dataclass(frozen=True)
class Statement:
    """The result of running a witness.

    Attributes:
        comparison: the comparison of its outputs; None if the witness did not run.
        reason: why the witness did not run.
        refused: index of each input that the witness did not accept -> its error message.
        deviations: the deviations that the mode documents for operators of this model; empty for another session of the
            runtime.
    """

    witness: Witness
    comparison: Comparison | None = None
    reason: str = ""
    refused: Mapping[int, str] = field(default_factory=dict)
    deviations: Sequence[Deviation] = ()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the comparison; None if the witness did not run."""
        return None if self.comparison is None else decide(self.comparison, self.deviations)

    def to_json(self, kinds: Sequence[str]) -> dict[str, Any]:
        """Returns the entry of this witness in the numerics report.

        Args:
            kinds: the type of each generated input, see `core.verification.vectors.sample_kinds`.
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
            "agrees": self.outcome is not Outcome.DIFFERENT,
            "equal_percent": percent(comparison.equal, comparison.values),
            "largest_difference": comparison.largest_difference,
            "largest_steps": comparison.largest_steps,
            "largest_relative": comparison.relative_difference,
            "outputs": [output.to_json() for output in comparison.outputs],
        }

    @property
    def text(self) -> str:
        """The result as a phrase without the witness's name, such as "all 80 values from 8 inputs are equal"."""
        if self.comparison is None:
            return self.reason
        return _compared(self.comparison) + _refused(self.refused)


def report(
    statements: Sequence[Statement],
    sessions: Sequence[Statement],
    kinds: Sequence[str],
    no_witness: str,
    *,
    accepts: bool = False,
    is_real: bool = False,
) -> dict[str, Any]:
    """Returns the part of a numerics report that describes the comparisons.

    Args:
        statements: the results of Octet's canonical form, which comes first, and of the other runtimes.
        sessions: the results of the same runtimes with other options. These results are for information only.
        kinds: the type of each generated input.
        no_witness: the reason if `statements` contains no other runtime.
        accepts: True if the request for the build accepts differences from the reference.
        is_real: True if nothing in the model is quantized. A numerics mode defines the arithmetic of integers, so any
            session of the reference runtime with which such a build agrees is enough. A build of a quantized model has
            to agree with a session bit for bit.

    Returns:
        A dictionary with these members:

        - `exact`: True if every value equals the canonical form's; in float64, to within `DOUBLE_TOLERANCE`.
        - `verified`: True if the artifact is exact and the outcome is not `different`.
        - `accepted`: True if a build that differs may be served; otherwise absent.
        - `outcome`: see `core.verification.agreement.decide`.
        - `summary`: a sentence.
        - `reference`: the reference runtime that ran, or None.
        - `follows`: another session of that runtime, if it gives Octet's values although the session that decides does
          not; otherwise absent.
        - `inputs`: the number of inputs, in total and of each type.
        - `deviations`: the deviations that the mode documents for operators of this model.
        - `witnesses` and `other_sessions`: an entry for each of `statements` and `sessions`.
    """
    own, *others = statements
    ran = next((statement for statement in others if statement.comparison is not None), None)
    outcome = (ran.outcome if ran else None) or Outcome.OWN_ONLY
    exact = own.comparison is not None and all(each.is_reproduced for each in own.comparison.outputs)
    followed = _followed(ran, sessions)
    if outcome is Outcome.DIFFERENT and followed is not None and (is_real or followed.outcome is Outcome.EQUAL):
        outcome = Outcome.DOCUMENTED
    is_accepted = exact and accepts and outcome is Outcome.DIFFERENT
    return {
        "exact": exact,
        "verified": exact and outcome is not Outcome.DIFFERENT,
        **({"accepted": True} if is_accepted else {}),
        "outcome": outcome,
        "summary": _summary(own, ran, others, no_witness, followed, outcome)
        + ("; the differences were accepted" if is_accepted else ""),
        "reference": ran.witness.title if ran else None,
        **({"follows": followed.witness.title} if followed else {}),
        "inputs": _inputs(own, kinds),
        "deviations": [each.to_json() | {"text": each.text} for each in (ran.deviations if ran else ())],
        "witnesses": [statement.to_json(kinds) for statement in statements],
        "other_sessions": [statement.to_json(kinds) for statement in sessions],
    }


def not_checked(reason: str) -> dict[str, Any]:
    """Returns the report of an artifact that was not run, with the same members as `report`."""
    return {
        "exact": False,
        "verified": False,
        "reason": reason,
        "outcome": Outcome.NOT_CHECKED,
        "summary": f"not checked: {reason}",
        "reference": None,
        "deviations": [],
        "witnesses": [],
        "other_sessions": [],
    }


def float_share(coverage: Mapping[str, Any]) -> dict[str, Any]:
    """Summarizes the floating-point operators of a coverage report, without the conversions of inputs and outputs.

    Returns:
        `operators`: each operator with its multiply-accumulates and the reason; `macs_percent`: their share of all
        multiply-accumulates; `text`: a phrase. If the report lacks this information, which can happen if it came with
        an artifact, `operators` is empty and `macs_percent` None.
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
    share = percent(in_float, whole) if in_float else 0.0
    count = sum(each.get("operators", 1) for each in coverage["floating"] if not each.get("boundary"))
    text = f"{_counted(count, 'operator')} in float, {share:.4g} % of the multiply-accumulates"
    return {"operators": operators, "macs_percent": share, "text": text if operators else "none"}


def percent(part: int, whole: int) -> float:
    """Returns `part` as a percentage of `whole`, rounded down to two decimals: 100 only if the two are equal."""
    return 100.0 if part == whole else math.floor(10_000 * part / whole) / 100


def _inputs(own: Statement, kinds: Sequence[str]) -> dict[str, Any]:
    numbers = own.comparison.inputs if own.comparison else ()
    return {"count": len(numbers), "kinds": dict(Counter(kinds[number] for number in numbers))}


def _followed(ran: Statement | None, sessions: Sequence[Statement]) -> Statement | None:
    """If Octet does not agree with the session that decides, returns another session of the reference runtime with
    which Octet agrees.
    """
    if ran is None or ran.comparison is None or decide(ran.comparison) is not Outcome.DIFFERENT:
        return None  # Octet agrees with the witness, except for rounding of floating-point outputs
    return next((session for session in sessions if session.outcome is Outcome.EQUAL), None) or next(
        (session for session in sessions if session.outcome is Outcome.DOCUMENTED != ran.outcome), None
    )


def _summary(
    own: Statement,
    ran: Statement | None,
    others: Sequence[Statement],
    no_witness: str,
    followed: Statement | None,
    outcome: Outcome,
) -> str:
    if ran is not None:
        why = f": {next(iter(ran.refused.values()))}" if ran.refused else ""
        is_equal = followed is not None and followed.outcome is Outcome.EQUAL
        explained = "" if outcome is Outcome.EQUAL else _explained(ran, outcome, is_equal=is_equal)
        if followed is not None:
            witness = followed.witness
            explained += (
                f"; sessions of {witness.name} disagree, and Octet follows the session {witness.note}: {followed.text}"
            )
        return f"checked against {ran.witness.title}: {ran.text}{why}{explained}"
    reasons = [f"{statement.witness.name} {statement.reason}" for statement in others] or [no_witness]
    return f"checked against {own.witness.name} only: {own.text}; {'; '.join(reasons)}"


_NOT_QUANTIZED = "the model is not quantized, so agreement with one session"


def _explained(ran: Statement, outcome: Outcome, *, is_equal: bool) -> str:
    """Returns the part of the summary about documented differences from the reference.

    Args:
        is_equal: true if Octet's values equal those of another session of the reference.
    """
    deviations = "".join(f"; {each.text}" for each in ran.deviations)
    if ran.outcome is Outcome.DOCUMENTED:
        return deviations or "; within what the mode documents for real values"
    if outcome is Outcome.DOCUMENTED:
        return f"{deviations}; {'equality with one session' if is_equal else _NOT_QUANTIZED} is enough"
    return f"{deviations}; the mode documents no such difference"


def _compared(comparison: Comparison) -> str:
    values = f"{comparison.values:,} values from {_counted(len(comparison.inputs), 'input')}"
    if comparison.is_equal:
        return f"all {values} are equal"
    relative = comparison.relative_difference
    if relative is not None and relative <= REAL_TOLERANCE and not comparison.largest_steps:
        equal = percent(comparison.equal, comparison.values)
        return f"all {values} agree to {relative:.2g} of the output's range, {equal:.4g} % of them bit for bit"
    unequal = comparison.values - comparison.equal
    share = percent(unequal, comparison.values)
    of = f"{unequal:,} of {values} differ ({f'{share:.4g} %' if share else 'less than 0.01 %'})"
    whole = [output for output in comparison.outputs if not output.is_real and not output.is_equal]
    real = [output for output in comparison.outputs if output.is_real and not output.is_equal]
    parts = [_steps(whole)] if whole else []
    return ", ".join([of, " and ".join([*parts, *([_shares(real)] if real else [])])])


def _steps(outputs: Sequence[OutputComparison]) -> str:
    found = [output.largest_difference for output in outputs]
    if None in found:
        return "in shape or type"
    return f"by at most {_counted(int(max(each or 0 for each in found)), 'step')}"


def _shares(outputs: Sequence[OutputComparison]) -> str:
    """Returns a phrase about the differences of floating-point outputs, as shares of the outputs' ranges."""
    if any(output.largest_difference is None for output in outputs):
        return "in shape or type, or NaN or an infinity beside another value"
    shares = [output.relative_difference for output in outputs]
    if None in shares:
        return f"by at most {max(output.largest_difference or 0.0 for output in outputs):.2g}, where the range is 0"
    return f"by at most {max(each or 0.0 for each in shares):.2g} of the output's range"


def _refused(refused: Mapping[int, str]) -> str:
    return f"; it refused {_counted(len(refused), 'other input')}" if refused else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
