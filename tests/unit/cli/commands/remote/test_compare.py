"""Tests of the output of `octet compare` for a server's response."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from service.cli.app import app
from service.cli.client import Client

DIFFERENT = {"output": "y", "different": 2, "first": 5}


def comparison(equal: bool | None, *differences: dict[str, Any], problem: str | None = None) -> dict[str, Any]:
    first: dict[str, Any] = {"pool": "a", "target": "x86-64-v3", "worker": "w1", "problem": None, "differences": []}
    second = {"pool": "b", "target": "aarch64", "worker": "w2", "problem": problem, "differences": list(differences)}
    return {"name": "digits", "version": 1, "equal": equal, "reference": "a", "answers": [first, second]}


def compare(tmp_path: Path, patch: pytest.MonkeyPatch, answer: dict[str, Any], *more: str) -> Result:
    np.save(tmp_path / "x.npy", np.zeros(3, np.int8))
    patch.setattr(Client, "metadata", lambda self, model, version: {"inputs": [{"name": "x"}]})
    patch.setattr(Client, "compare", lambda self, model, names, inputs, version: answer)
    return CliRunner().invoke(app, ["compare", "digits", str(tmp_path / "x.npy"), *more])


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        (comparison(True), 0, "b  aarch64  answered"),
        (comparison(False, DIFFERENT), 1, "b  aarch64  2 elements of y differ from a, first 5"),
        (
            comparison(False, {**DIFFERENT, "different": None, "first": None}),
            1,
            "b  aarch64  y has another shape or type than that of a",
        ),
        (comparison(None, problem="it is not built"), 0, "b  aarch64  it is not built"),
    ],
)
def test_each_pool_has_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], status: int, line: str
) -> None:
    result = compare(tmp_path, monkeypatch, answer)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (status, line)


def test_json_has_the_same_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = compare(tmp_path, monkeypatch, comparison(False, DIFFERENT), "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, comparison(False, DIFFERENT))


def test_a_model_of_another_number_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = str(tmp_path / "x.npy")
    result = compare(tmp_path, monkeypatch, comparison(True), twice)
    assert result.exit_code == 1
    assert "digits has 1 inputs, but 2 were given" in result.stderr
