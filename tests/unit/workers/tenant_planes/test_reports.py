"""Tests with forged reports of a tenant's data plane."""

from __future__ import annotations

from typing import Any

import pytest

from service.workers.tenant_planes.reports import Model, cards_in, rejected_in, uses_in

MODELS = {1: Model("acme~digits", "1", "t")}
HISTOGRAM = {"counts": [1, 2], "sum": 0.5}


def report(**changed: Any) -> Any:
    use = {"key": 1, "admitted": 1, "queued": 0, "used_s": 2.5, "changes": {"answers": []}, **changed}
    return {"models": [use], "rejected": {}}


def answer(**changed: Any) -> dict[str, Any]:
    return {"changes": {"answers": [{"protocol": "rest", "code": "200", "total": HISTOGRAM, **changed}]}}


def test_a_valid_report_is_accepted() -> None:
    changes = {**answer()["changes"], "queue": HISTOGRAM, "more": 1}
    (use,) = uses_in(report(changes=changes), MODELS).values()
    assert use["changes"] == {**answer()["changes"], "queue": HISTOGRAM}
    assert (use["model"], use["admitted"], use["used_s"]) == ("acme~digits", 1, 2.5)
    assert uses_in(report(**answer(protocol="grpc", code="OK")), MODELS)
    gpus: Any = {"cards": [{"card": 0, "name": "T4", "memory_bytes": 9, "used_bytes": 1}]}
    assert cards_in(gpus)[0]["used_bytes"] == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"admitted": "1"},
        {"queued": -1},
        {"used_s": float("nan")},
        {"used_s": "1"},
        {"changes": {}},
        {"changes": {"answers": [], "queue": {"counts": [10**400], "sum": 0}}},
        {"changes": {"answers": [], "queue": {"counts": [1] * 1000, "sum": 0}}},
        {"changes": {"answers": [], "queue": {"counts": "11", "sum": 0}}},
        {"changes": {"answers": [], "queue": {"counts": [1], "sum": float("inf")}}},
        answer(protocol="gopher"),
        answer(code="a label of its own"),
        answer(code="99999"),
        answer(protocol="grpc", code="200"),
    ],
)
def test_a_report_that_would_corrupt_the_metrics_of_all_is_rejected(changed: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
        uses_in(report(**changed), MODELS)


def test_the_accepted_reasons_are_those_of_the_data_plane() -> None:
    some: Any = {"rejected": {"deadline": 1, "made up": 2}}
    assert rejected_in(some) == {"deadline": 1}
    fraction: Any = {"rejected": {"deadline": 1.5}}
    with pytest.raises(ValueError, match="not a count"):
        rejected_in(fraction)
