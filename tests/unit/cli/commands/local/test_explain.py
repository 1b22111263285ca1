"""Tests of the output of `octet explain`."""

from __future__ import annotations

from typing import Any

import pytest

from service.cli.commands.local.explain import show
from service.cli.output import Output
from service.core.artifacts.explanation import build_explanation
from service.core.digest import digest_of

LAYERS = [
    {"layer": "x_image", "operators": "pack", "kernel": "pack", "kind": "layout", "symbol": "e", "macs": 0},
    {
        "layer": "net/block/Relu;net/block/add",
        "operators": "conv2d+requantize",
        "kernel": "conv",
        "symbol": "c",
        "macs": 50_000,
        "tile": "1x14 pixels",
        "excess_groups": 0,
        "shifts": 3,
    },
]
PLAIN = [{"layer": "net/softmax", "operators": "softmax", "reason": "too soft", "macs": 0, "place": 2}]
PROFILE: dict[str, Any] = {
    "machine": "A CPU",
    "threads": 1,
    "rounds": 7,
    "model_seconds": 0.002,
    "least_model_seconds": 0.001,
    "peak_macs_per_s": 1e9,
    "calls": [
        {"symbol": symbol, "seconds": seconds}
        for symbol, seconds in [("e", 1e-6), ("c", 100e-6), ("exp", 2e-6), ("sum", 3e-6)]
    ],
}


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return show_lines(capsys, {"layers": LAYERS, "plain": PLAIN, "declined": {}, "reorders": 1})


def show_lines(capsys: pytest.CaptureFixture[str], kernels: Any, profile: Any = PROFILE) -> list[str]:
    coverage = {"macs": 50_000, "integer_percent": 100.0, "kernels": kernels}
    show(Output(as_json=False), digest_of(b""), build_explanation(coverage, profile))
    return capsys.readouterr().out.splitlines()


def line(lines: list[str], word: str) -> str:
    return next(line for line in lines if word in line)


def test_the_measurement_is_described_first(lines: list[str]) -> None:
    assert lines[1] == "A CPU, 1 thread, peak 1 GMAC/s, 7 rounds"


def test_a_layer_is_shown_with_its_rate_and_its_tile(lines: list[str]) -> None:
    words = line(lines, "block/Relu ").split()
    assert words[:3] == ["block/Relu", "conv2d+requantize", "conv"]
    assert " ".join(words[3:]) == "50.0 k 100 µs 0.5 50.0 % 1x14 pixels, 3 shifts"


def test_a_layer_without_a_kernel_shows_the_reason_and_the_called_code(lines: list[str]) -> None:
    index = next(number for number, text in enumerate(lines) if "softmax" in text)
    assert lines[index].split()[-5:] == ["none", "5.00", "µs", "too", "soft"]
    assert [text.split() for text in lines[index + 1 : index + 3]] == [["exp", "2.00", "µs"], ["sum", "3.00", "µs"]]


def test_the_slowest_layer_is_named(lines: list[str]) -> None:
    assert "The slowest layer is block/Relu: 100 µs, 94.3% of the time of all layers." in lines


def test_families_add_up(lines: list[str]) -> None:
    conv = [text for text in lines if text.startswith("conv ")]
    assert conv[0].split() == ["conv", "1", "50.0", "k", "100", "µs", "0.5", "50.0", "%", "94.3%"]
    assert [text.split()[1] for text in lines if text.startswith("sum ")] == ["3", "3"]
    assert line(lines, "reorder") == "1 reorder into and out of the kernels' layout."


def test_kinds_of_code_add_up_to_the_families(lines: list[str]) -> None:
    shares = [line(lines, kind).split()[-1] for kind in ("integer kernels", "layout changes", "generated code  ")]
    assert shares == ["94.3%", "0.9%", "4.7%"]


def test_much_generated_code_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = {"layers": LAYERS, "plain": PLAIN, "declined": {}, "reorders": 1}
    slow = [{"symbol": symbol, "seconds": 50e-6} for symbol in ("octet_plain_exp", "octet_plain_sum1")]
    shown = show_lines(capsys, kernels, {**PROFILE, "calls": [*PROFILE["calls"][:2], *slow]})
    assert "Generated code takes 50 % of the time: exp 25 %, sum 25 %." in shown


def test_avoided_copies_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    joined = [{"layer": "mixed", "parts": 4, "in_place": 3}, {"layer": "last", "parts": 2, "in_place": 2}]
    kernels = {"layers": LAYERS, "plain": PLAIN, "declined": {}, "reorders": 1, "concatenations": joined}
    assert show_lines(capsys, kernels)[-1] == "5 of 6 parts of concatenations written in place, without a copy."


def test_a_target_without_kernels_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = {"layers": [], "plain": [], "declined": {}, "reorders": 0}
    lines = show_lines(capsys, kernels, {**PROFILE, "peak_macs_per_s": None})
    assert "no kernels of its own" in lines[-1]
    assert "peak" not in lines[1]


def test_a_long_reason_cuts_off_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    plain = [{**PLAIN[0], "reason": "too soft, " * 30}]
    lines = show_lines(capsys, {"layers": LAYERS, "plain": plain, "declined": {}, "reorders": 1})
    assert "50.0 k   100 µs     0.5   50.0 %  1x14 pixels, 3 shifts" in line(lines, "block/Relu ")
    assert not any("…" in each for each in lines)
