"""What a tenant's data plane reports, of which nothing is believed that could harm the counts of others.

Its numbers go into metrics that all tenants' are read with, and into the choice of what makes room for what.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_REASONS = ("queue_full", "deadline", "no_worker", "canceled", "invalid")
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_STATUSES = range(100, 600)
_HISTOGRAMS = ("input", "infer", "output", "queue", "batch")
_MOST, _MOST_BUCKETS, _MOST_CARDS, _LONGEST_NAME = 1 << 53, 64, 64, 256

Members = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """What was loaded under a key, by the order to load it."""

    model: str
    version: str
    target: str


def uses_in(report: Members, models: Mapping[int, Model]) -> dict[int, Members]:
    """What is said of the models that were loaded there, by key; their names are those of the orders.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: it makes no sense.
    """
    found = {}
    for each in report["models"]:
        if (model := models.get(each["key"])) is not None:
            use = {"key": each["key"], "model": model.model, "version": model.version, "target": model.target}
            use |= {name: _count(each[name]) for name in ("admitted", "queued")}
            found[each["key"]] = {**use, "used_s": _real(each["used_s"]), "changes": _changes(each["changes"])}
    return found


def rejected_in(report: Members) -> dict[str, int]:
    """How many requests were refused, by reason. Raises as `uses_in`."""
    return {reason: _count(report["rejected"][reason]) for reason in _REASONS if reason in report["rejected"]}


def cards_in(report: Members) -> list[Members]:
    """The cards, and what is taken of them. Raises as `uses_in`."""
    return [
        {"card": _count(each["card"]), "name": str(each["name"])[:_LONGEST_NAME]}
        | {name: _count(each[name]) for name in ("memory_bytes", "used_bytes")}
        for each in report.get("cards", [])[:_MOST_CARDS]
    ]


def _changes(said: Members) -> Members:
    answers = [
        {
            "protocol": each["protocol"],
            "code": _code(each["protocol"], each["code"]),
            "total": _histogram(each["total"]),
        }
        for each in said["answers"]
    ]
    return {"answers": answers, **{name: _histogram(said[name]) for name in _HISTOGRAMS if name in said}}


def _code(protocol: object, code: str) -> str:
    if (protocol == "grpc" and code in _CODES) or (protocol == "rest" and int(code) in _STATUSES):
        return code
    raise ValueError(f"no code of {str(protocol)[:_LONGEST_NAME]}")


def _histogram(said: Members) -> Members:
    counts = said["counts"]
    if not isinstance(counts, list) or len(counts) > _MOST_BUCKETS:
        raise ValueError("no histogram")
    return {"counts": [_count(each) for each in counts], "sum": _real(said["sum"])}


def _count(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < _MOST:
        raise ValueError("no count")
    return number


def _real(number: object) -> float:
    if not isinstance(number, (int, float)) or not math.isfinite(number) or abs(number) >= _MOST:
        raise ValueError("no number of seconds")
    return float(number)
