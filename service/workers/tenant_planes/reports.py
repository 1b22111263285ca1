"""Checks the reports of a tenant's data plane, so that they cannot corrupt the counts of other tenants.

The numbers in these reports go into metrics, where they are read together with the numbers of all tenants. The numbers
also decide which model is unloaded to make room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from service.workers.data_plane.messages import (
    GRPC_CODES,
    Changes,
    GpuMemory,
    HistogramChange,
    ModelReport,
    Phase,
    Report,
    ResponseCounts,
)

_REASONS = ("queue_full", "deadline", "no_worker", "canceled", "invalid")
_STATUSES = range(100, 600)
_PHASES: tuple[Phase, ...] = ("input", "infer", "output", "queue", "batch")
_MOST, _MOST_BUCKETS, _MOST_CARDS, _LONGEST_NAME = 1 << 53, 64, 64, 256


@dataclass(frozen=True)
class Model:
    """The model that was loaded under a key, as named in the order to load it."""

    model: str
    version: str
    target: str


def uses_in(report: Report, models: Mapping[int, Model]) -> dict[int, ModelReport]:
    """Returns the report's entries for models that this data plane has loaded, by key, with the names from the load
    orders.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: the report is not valid.
    """
    found: dict[int, ModelReport] = {}
    for each in report["models"]:
        if (model := models.get(each["key"])) is not None:
            found[each["key"]] = {
                "key": each["key"],
                "model": model.model,
                "version": model.version,
                "target": model.target,
                "admitted": _count(each["admitted"]),
                "queued": _count(each["queued"]),
                "used_s": _real(each["used_s"]),
                "changes": _changes(each["changes"]),
            }
    return found


def rejected_in(report: Report) -> dict[str, int]:
    """Returns how many requests were refused, by reason. Raises the same errors as `uses_in`."""
    return {reason: _count(report["rejected"][reason]) for reason in _REASONS if reason in report["rejected"]}


def cards_in(report: Report) -> list[GpuMemory]:
    """Returns the GPUs and their memory in use. Raises the same errors as `uses_in`."""
    return [
        {
            "card": _count(each["card"]),
            "name": str(each["name"])[:_LONGEST_NAME],
            "memory_bytes": _count(each["memory_bytes"]),
            "used_bytes": _count(each["used_bytes"]),
        }
        for each in report.get("cards", [])[:_MOST_CARDS]
    ]


def _changes(changes: Changes) -> Changes:
    answers: list[ResponseCounts] = [
        {
            "protocol": each["protocol"],
            "code": _code(each["protocol"], each["code"]),
            "total": _histogram(each["total"]),
        }
        for each in changes["answers"]
    ]
    found: Changes = {"answers": answers}
    for phase in _PHASES:
        if phase in changes:
            found[phase] = _histogram(changes[phase])
    return found


def _code(protocol: object, code: str) -> str:
    if (protocol == "grpc" and code in GRPC_CODES) or (protocol == "rest" and int(code) in _STATUSES):
        return code
    raise ValueError(f"not a status code of {str(protocol)[:_LONGEST_NAME]}")


def _histogram(histogram: HistogramChange) -> HistogramChange:
    counts = histogram["counts"]
    if not isinstance(counts, list) or len(counts) > _MOST_BUCKETS:
        raise ValueError("not a histogram")
    return {"counts": [_count(each) for each in counts], "sum": _real(histogram["sum"])}


def _count(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < _MOST:
        raise ValueError("not a count")
    return number


def _real(number: object) -> float:
    if not isinstance(number, (int, float)) or not math.isfinite(number) or abs(number) >= _MOST:
        raise ValueError("not a number of seconds")
    return float(number)
