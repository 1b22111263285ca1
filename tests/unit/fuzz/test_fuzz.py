"""Tests of the fuzzing itself: damage keeps a file's structure, and inputs that fail are detected and minimized."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers import auto
from service.compiler.importers.detect import MXNET, ONNX
from service.core.errors import MalformedModel, OctetError
from tests.fuzz import findings
from tests.fuzz.findings import Judge, minimized
from tests.fuzz.mutations import MUTATORS, REDUCERS, bytes_of, fields_of
from tests.fuzz.seeds import SEEDS, SHAPES


def test_an_unchanged_protobuf_survives_a_round_trip() -> None:
    for data in SEEDS[ONNX]():
        fields = fields_of(data)
        assert fields is not None
        assert any(isinstance(value, list) for _, value in fields)
        assert bytes_of(fields) == data


@pytest.mark.parametrize("kind", SEEDS)
def test_some_damage_leaves_a_model_and_some_does_not(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every damaged file is either imported or refused with an `OctetError`.

    If all were refused, the code after the reader would not be tested. If none were, the damage would be too small.
    """
    monkeypatch.setattr(findings, "facts_of", noted := Noted())
    judge, generator = Judge(kind, SHAPES.get(kind, {})), random.Random(0)
    seeds, count = [seed for seed in SEEDS[kind]() if len(seed) < 40_000], 60
    for _ in range(count):
        damaged = MUTATORS[kind](generator.choice(seeds), generator, lambda part: flipped(part, generator))
        assert judge(damaged) is None
    assert 0 < noted.count < count


class Noted:
    """A stand-in for `facts_of` that counts the imported models."""

    count = 0

    def __call__(self, imported: Any) -> Noted:
        self.count += 1
        return self

    def to_json(self) -> None:
        pass


def flipped(data: bytes, generator: random.Random) -> bytes:
    position = generator.randrange(max(1, len(data)))
    return (
        data[:position]
        + bytes(byte ^ 1 << generator.randrange(8) for byte in data[position : position + 1])
        + data[position + 1 :]
    )


def _fails(data: bytes) -> None:
    raise KeyError("x")


def _says_no_stage(data: bytes) -> None:
    raise MalformedModel("damaged")


def _hangs(data: bytes) -> None:
    end = time.process_time() + 5
    while time.process_time() < end:
        pass


def _reads(data: bytes) -> None:
    Path("/etc/hostname").read_text()


@pytest.mark.parametrize(
    ("importer", "name"),
    [(_fails, "KeyError"), (_says_no_stage, "NoStage"), (_hangs, "_TooSlow"), (_reads, "_Forbidden")],
)
def test_a_failure_is_a_finding(importer: Callable[[bytes], None], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "IMPORTERS", {ONNX: lambda data, at, shapes, fixed: importer(data)})
    monkeypatch.setattr(findings, "_SLOWEST_S", 0.1)
    assert Judge(ONNX, {})(b"") == f"{name} outside"


@pytest.mark.parametrize("kind", [ONNX, MXNET])
def test_a_finding_is_minimized(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_REDUCE_S", 0.5)

    def is_same(data: bytes) -> bool:
        try:
            auto.import_model(data, shapes=SHAPES.get(kind))
        except OctetError:
            return False
        return True

    seed = next(seed for seed in sorted(SEEDS[kind](), key=len) if is_same(seed))
    small = minimized(seed, is_same, REDUCERS[kind])
    assert is_same(small)
    assert len(small) < len(seed)
