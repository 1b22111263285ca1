"""Tests of how `octet compile`, `octet push` and `octet builds` show an artifact's reports."""

from __future__ import annotations

from typing import Any

from service.cli.reports import summary

LAYER = {"layer": "a", "operators": "conv2d", "kernel": "conv", "kind": "integer", "symbol": "octet_conv_a", "macs": 5}
COVERAGE: dict[str, Any] = {
    "macs": 5,
    "integer_percent": 100.0,
    "floating": [],
    "kernels": {"layers": [LAYER], "plain": []},
}


def profile(**seconds: float) -> dict[str, Any]:
    return {"peak_macs_per_s": None, "calls": [{"symbol": name, "seconds": each} for name, each in seconds.items()]}


def test_the_time_is_shown_by_kind_of_code() -> None:
    reports = {"coverage": COVERAGE, "profile": profile(octet_conv_a=3.0, octet_plain_exp=1.0)}
    assert [line.split(maxsplit=1) for line in str(summary(reports)).splitlines()[1:]] == [
        ["time", "75 % in integer kernels, 25 % in generated code"],
        ["generated", "code takes 25 % of the time: exp 25 %"],
    ]


def test_no_time_is_shown_if_none_was_measured() -> None:
    assert "time" not in str(summary({"coverage": COVERAGE}))
    older = {"macs": 5, "integer_percent": 100.0, "floating": []}
    assert "time" not in str(summary({"coverage": older, "profile": profile(octet_conv_a=3.0)}))


def test_functions_of_a_gpu_that_may_differ_in_the_last_bit_are_named() -> None:
    inexact = {"octet_plain_mish_0": ["log", "exp"], "octet_plain_erf_1": ["exp"]}
    text = str(summary({"coverage": {**COVERAGE, "kernels": {**COVERAGE["kernels"], "inexact": inexact}}}))
    assert "inexact     a GPU's exp, log may differ" in text
    assert "inexact" not in str(summary({"coverage": COVERAGE}))


def test_operators_in_float_are_grouped_by_type_with_their_share_of_the_time() -> None:
    floating = [{"op": f"Erf_{i}_x", "macs": 0, "reason": "real"} for i in range(985)]
    floating += [{"op": f"T{chr(65 + i)}_1_x", "macs": 0, "reason": "real"} for i in range(9)]
    plain = [{"layer": each["op"], "operators": "erf", "place": 1, "macs": 0, "reason": ""} for each in floating]
    coverage = {**COVERAGE, "floating": floating, "kernels": {"layers": [LAYER], "plain": plain}}
    lines = str(summary({"coverage": coverage, "profile": profile(octet_conv_a=3.0, octet_plain_erf=1.0)})).splitlines()
    assert sum("in float" in line for line in lines) == 9
    assert "  in float    985 Erf, 25 % of the time: real" in lines
    assert lines[-1] == "  in float    2 operators of 2 other types"
