"""Tests of parsing untrusted call plans: no plan can access memory outside the model's."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from service.core.artifacts.call_plan import Buffer, Call, CallPlan, Launch, Space
from service.core.errors import CorruptBlob, Unsupported

PLAN = CallPlan(
    192,
    (
        Buffer(Space.INPUT, 0, 10),
        Buffer(Space.CONSTANT, 64, 100),
        Buffer(Space.ARENA, 64, 128),
        Buffer(Space.OUTPUT, 0, 10),
    ),
    (Call("octet_conv_1", (0, 1, 2)), Call("octet_plain_exp", (2, 3))),
    ((0, 3),),
)


def changed(**members: Any) -> dict[str, Any]:
    return {**deepcopy(PLAN.to_json()), **members}


def test_a_plan_survives_json() -> None:
    assert CallPlan.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN
    assert PLAN.constant_bytes == 164


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"arena_bytes": 191}, "a buffer ends at 192, but the arena has only 191 bytes"),
        ({"arena_bytes": -1}, "too large"),
        ({"arena_bytes": 1 << 50}, "too large"),
        ({"arena_bytes": "192"}, "not an integer"),
        ({"arena_bytes": True}, "not an integer"),
        ({"buffers": [["arena", 32, 64]]}, "not a multiple of 64"),
        ({"buffers": [["constant", -64, 64]]}, "a buffer of 64 bytes at -64 is not possible"),
        ({"buffers": [["input", 0, -1]]}, "a buffer of -1 bytes at 0 is not possible"),
        ({"buffers": [["stack", 0, 64]]}, "stack"),
        ({"buffers": [["input", 0]]}, "cannot be read"),
        ({"calls": [["octet_conv_1", [0, 4]]]}, r"call 0 \(octet_conv_1\) uses buffer 4, but the plan has 4 buffers"),
        ({"calls": [["octet_conv_1", [-1]]]}, "uses buffer -1"),
        ({"calls": [["system", [0]]]}, "call 0 has an invalid function name"),
        ({"calls": [["octet_x", [0] * 4097]]}, "more than 4096 operands"),
        ({"calls": [["octet_x", [0.0]]]}, "not an integer"),
        ({"copies": [[1, 3]]}, "have different sizes"),
        ({"copies": [[0, 9]]}, "a copy uses buffer 9"),
        ({"copies": 7}, "cannot be read"),
        ({"buffers": [["length", 0, 4]]}, "a buffer is not a length, or the plan has no longest one"),
        ({"buffers": [["length", 1, 4]], "longest": 8}, "a buffer is not a length"),
        ({"buffers": [["length", 0, 8]], "longest": 8}, "a buffer is not a length"),
        ({"longest": -1}, "a plan cannot have inputs of up to -1 positions"),
        ({"longest": 1 << 31}, "a plan cannot have inputs of up to"),
        ({"longest": 8, "launches": [[1] * 7] * 2}, "a plan cannot have inputs of up to"),
    ],
)
def test_invalid_plans_are_refused(members: dict[str, Any], reason: str) -> None:
    with pytest.raises(CorruptBlob, match=reason):
        CallPlan.from_json(changed(**members))


def test_a_plan_with_a_length_survives_json() -> None:
    plan = replace(PLAN, buffers=(*PLAN.buffers, Buffer(Space.LENGTH, 0, 4)), longest=128)
    assert CallPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_missing_member_is_named() -> None:
    with pytest.raises(CorruptBlob, match="copies"):
        CallPlan.from_json({name: value for name, value in PLAN.to_json().items() if name != "copies"})


def test_another_version_is_refused_with_a_hint() -> None:
    with pytest.raises(Unsupported, match="version 2") as caught:
        CallPlan.from_json(changed(version=2))
    assert "compile the model again" in (caught.value.hint or "")


ON_A_CARD = replace(PLAN, launches=(Launch((7, 1, 1), (32, 4, 1), 1 << 16), Launch((1, 1, 1), (1, 1, 1))))


def test_a_plan_for_a_gpu_contains_launch_parameters() -> None:
    written = json.loads(json.dumps(ON_A_CARD.to_json()))
    assert written["launches"] == [[7, 1, 1, 32, 4, 1, 1 << 16], [1, 1, 1, 1, 1, 1, 0]]
    assert CallPlan.from_json(written) == ON_A_CARD
    assert "launches" not in PLAN.to_json()
    assert CallPlan(0, (), (), (), launches=()).to_json()["launches"] == []


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ([(1 << 31) - 1, 65535, 65535, 1024, 1, 1, 227 << 10], None),
        ([1, 1, 1, 4, 4, 64, 0], None),
        ([1 << 31, 1, 1, 1, 1, 1, 0], "no GPU supports a grid of 2147483648 x 1 x 1 blocks"),
        ([1, 65536, 1, 1, 1, 1, 0], "grid of 1 x 65536 x 1"),
        ([1, 1, 65536, 1, 1, 1, 0], "grid of"),
        ([0, 1, 1, 1, 1, 1, 0], "grid of"),
        ([1, 1, -1, 1, 1, 1, 0], "grid of"),
        ([1, 1, 1, 1025, 1, 1, 0], "no GPU supports a block of 1025 x 1 x 1 threads"),
        ([1, 1, 1, 32, 33, 1, 0], "block of"),
        ([1, 1, 1, 1, 1, 65, 0], "block of"),
        ([1, 1, 1, 1, 0, 1, 0], "block of"),
        ([1, 1, 1, 1, 1, 1, (227 << 10) + 1], "no GPU has 232449 bytes"),
        ([1, 1, 1, 1, 1, 1, -1], "no GPU has -1 bytes"),
        ([1, 1, 1, 1, 1, 1], "cannot be read"),
        ([1, 1, 1, 1, 1, 1, 0, 0], "cannot be read"),
        ([1, 1, 1, 1, 1, True, 0], "not an integer"),
        (7, "cannot be read"),
    ],
)
def test_launch_parameters_beyond_the_limits_are_refused(launch: Any, reason: str | None) -> None:
    plan = changed(launches=[launch, [1, 1, 1, 1, 1, 1, 0]])
    if reason is None:
        assert CallPlan.from_json(plan).to_json()["launches"][0] == launch
        return
    with pytest.raises(CorruptBlob, match=reason):
        CallPlan.from_json(plan)


def test_each_call_has_a_launch() -> None:
    with pytest.raises(CorruptBlob, match="a plan of 2 calls has 1 launches"):
        CallPlan.from_json(changed(launches=[[1, 1, 1, 1, 1, 1, 0]]))
