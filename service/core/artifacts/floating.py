"""Groups the operators that compute in float, so that people can read a coverage report of a thousand operators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The reason for all operators of a model without quantized values.
FLOAT = "float, not quantized"

# The name of a result begins with its operator's type: `MatMul_12_t14`, `CONV_2D_3_scores`, `conv1d_2`.
_TYPE = re.compile(r"(.+?)_?\d+(?:_.*)?$")


@dataclass(frozen=True)
class FloatGroup:
    """The operators of one type that compute in float for the same reason.

    Attributes:
        operator: their type, in the words of the model file; of a single operator, its name.
        count: how many there are.
        macs: their multiply-accumulates in one call.
        reason: why they compute in float.
        seconds: their time in one call; 0 if it was not measured.
    """

    operator: str
    count: int
    macs: int
    reason: str
    seconds: float = 0.0

    def text(self, macs: int, seconds: float = 0.0) -> str:
        """Returns a phrase such as `84 MatMul, 12 % of the multiply-accumulates: its sums are float32`.

        Args:
            macs, seconds: those of the whole model.
        """
        parts = [self.operator if self.count == 1 else f"{self.count} {self.operator}"]
        if self.macs and macs:
            parts.append(f"{_percent(self.macs / macs)} of the multiply-accumulates")
        if self.seconds and seconds:
            parts.append(f"{_percent(self.seconds / seconds)} of the time")
        return f"{', '.join(parts)}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        return {"operator": self.operator, "count": self.count, "macs": self.macs, "reason": self.reason}

    @staticmethod
    def from_json(group: Mapping[str, Any]) -> FloatGroup:
        return FloatGroup(str(group["operator"]), int(group["count"]), int(group["macs"]), str(group["reason"]))


def is_float(coverage: Mapping[str, Any]) -> bool:
    """Returns true if nothing in the model of a coverage report is quantized. The report is empty if it came with an
    artifact that has none.
    """
    return any(each["reason"] == FLOAT for each in coverage.get("floating", ()))


def group_floating(
    floating: Sequence[Mapping[str, Any]], seconds: Mapping[str, float] | None = None
) -> tuple[FloatGroup, ...]:
    """Groups the operators that a coverage report lists as `floating`, the most expensive group first.

    The conversions at the model's own boundary between real and quantized values are left out.

    Args:
        seconds: the measured time of operators, by name.
    """
    members: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in floating:
        if not each.get("boundary"):
            members.setdefault((operator_type(each["op"]), each["reason"]), []).append(each)
    groups = []
    for (operator, reason), found in members.items():
        count = sum({_operator(each["op"]): each.get("operators", 1) for each in found}.values())
        if count == 1:
            operator = _operator(found[0]["op"]).rstrip("_")
        elif len(found) == 1:  # one entry for all operators of a float model
            operator = "operators"
        time_s = sum((seconds or {}).get(each["op"], 0.0) for each in found)
        groups.append(FloatGroup(operator, count, sum(each["macs"] for each in found), reason, time_s))
    return tuple(sorted(groups, key=lambda group: (-group.seconds, -group.macs, -group.count)))


def _operator(name: str) -> str:
    """Returns the name of the operator of the model inside which `name` is computed."""
    return name.partition("_inside")[0]


def operator_type(name: str) -> str:
    """Returns the type of the operator that computes the result `name`."""
    match = _TYPE.fullmatch(name)
    return match[1] if match else name


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
