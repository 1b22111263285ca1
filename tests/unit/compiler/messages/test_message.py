"""Messages between processes are written and read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.compiler.messages.message import Count, Malformed, Message, Seconds
from service.core.artifacts.explanation import Call


@dataclass(frozen=True)
class Part(Message):
    name: str


@dataclass(frozen=True)
class Whole(Message):
    path: Path
    count: Count
    took_s: Seconds
    zero_point: int
    is_on: bool
    free: Any
    pair: tuple[int, float]
    names: tuple[str, ...]
    table: Mapping[str, Seconds]
    parts: tuple[Part, ...]
    call: Call
    limit: int | None
    reason: str | None = None
    shapes: Mapping[str, int] = field(default_factory=dict)


MEMBERS: Mapping[str, Any] = {
    "path": "/a/b",
    "count": 3,
    "took_s": 0.5,
    "zero_point": -5,
    "is_on": True,
    "free": [None, {"a": 1}],
    "pair": [1, 2.0],
    "names": ["x"],
    "table": {"x": 1.0},
    "parts": [{"name": "y"}],
    "call": {"symbol": "octet_x", "seconds": 1.0},
    "limit": None,
    "shapes": {},
}


def test_a_message_survives_a_round_trip() -> None:
    message = Whole.from_json(MEMBERS)
    assert (message.path, message.names, message.call) == (Path("/a/b"), ("x",), Call("octet_x", 1.0))
    assert json.loads(json.dumps(message.to_json())) == MEMBERS


def test_members_of_newer_senders_are_ignored() -> None:
    assert Whole.from_json({**MEMBERS, "more": 1}) == Whole.from_json(MEMBERS)


def test_a_member_with_a_default_may_be_missing() -> None:
    assert Whole.from_json({name: value for name, value in MEMBERS.items() if name != "shapes"}).shapes == {}


@pytest.mark.parametrize(
    ("member", "value", "text"),
    [
        ("path", 1, "path is not a string"),
        ("count", -1, "count is negative"),
        ("count", True, "count is not an integer"),
        ("count", 1.0, "count is not an integer"),
        ("took_s", -0.5, "took_s is negative"),
        ("took_s", float("inf"), "took_s is not a finite number"),
        ("took_s", float("nan"), "took_s is not a finite number"),
        ("took_s", 10**400, "took_s is not a finite number"),
        ("is_on", 1, "is_on is not true or false"),
        ("pair", [1], "pair does not have 2 elements"),
        ("names", "x", "names is not an array"),
        ("names", ["x", None], r"names\[1\] is not a string"),
        ("table", [], "table is not an object"),
        ("table", {"\x1b": None}, r"table\.… is not a finite number"),
        ("parts", [{}], r"parts\[0\]: name is missing"),
        ("call", {"symbol": "x"}, "call.seconds is missing"),
        ("limit", "x", "limit is not an integer"),
    ],
)
def test_a_member_of_another_type_is_an_error(member: str, value: object, text: str) -> None:
    with pytest.raises(Malformed, match=f"^{text}$"):
        Whole.from_json({**MEMBERS, member: value})


@pytest.mark.parametrize("members", [None, [], "x"])
def test_a_message_is_an_object(members: object) -> None:
    with pytest.raises(Malformed, match="the message is not an object"):
        Whole.from_json(members)
