"""Operators that compute in float are grouped by type and reason."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.artifacts.floating import FloatGroup, group_floating, operator_type


def entry(op: str, macs: int = 0, reason: str = "real", **more: Any) -> dict[str, Any]:
    return {"op": op, "macs": macs, "reason": reason, **more}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MatMul_12_t14", "MatMul"),
        ("CONV_2D_3_scores", "CONV_2D"),
        ("conv1d_12", "conv1d"),
        ("conv1d2", "conv1d"),
        ("relu", "relu"),
        ("the model", "the model"),
    ],
)
def test_the_type_is_the_first_part_of_a_name(name: str, expected: str) -> None:
    assert operator_type(name) == expected


def test_the_most_expensive_group_is_the_first() -> None:
    entries = [entry("Erf_1_a"), entry("Erf_2_b"), entry("Mul_3_c"), *(entry(f"MatMul_{i}_m", 10) for i in (4, 5))]
    assert group_floating(entries) == (
        FloatGroup("MatMul", 2, 20, "real"),
        FloatGroup("Erf", 2, 0, "real"),
        FloatGroup("Mul_3_c", 1, 0, "real"),
    )
    assert [group.operator for group in group_floating(entries, {"Mul_3_c": 2.0, "Erf_1_a": 1.0})] == [
        "Mul_3_c",
        "Erf",
        "MatMul",
    ]


def test_another_reason_is_another_group() -> None:
    assert len(group_floating([entry("Mul_1_a"), entry("Mul_2_b", reason="other")])) == 2


def test_the_parts_of_an_operator_count_once() -> None:
    parts = [entry(f"GRU_4__inside_o{i}", 16) for i in range(3)]
    assert group_floating(parts) == (FloatGroup("GRU_4", 1, 48, "real"),)


def test_boundaries_are_left_out() -> None:
    assert group_floating([entry("QuantizeLinear_0_x", boundary=True)]) == ()


def test_a_float_model_is_one_group() -> None:
    assert group_floating([entry("the model", 30, operators=7)]) == (FloatGroup("operators", 7, 30, "real"),)


def test_a_phrase_contains_the_shares() -> None:
    group = FloatGroup("MatMul", 84, 30, "its sums are float32", 0.5)
    assert group.text(120, 2.0) == (
        "84 MatMul, 25 % of the multiply-accumulates, 25 % of the time: its sums are float32"
    )
    assert FloatGroup("Erf_3_x", 1, 0, "real").text(120) == "Erf_3_x: real"
    assert FloatGroup.from_json(FloatGroup("a", 1, 2, "b").to_json()) == FloatGroup("a", 1, 2, "b")
