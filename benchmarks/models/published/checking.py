"""Checks a model file with the commands that a user would type: `octet inspect`, and `octet compile`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.models.published.shapes import open_shapes

_LIMIT_S = 1200
_LONGEST = 200  # characters of a reason in the table


@dataclass(frozen=True)
class Found:
    """The result of checking a file.

    Attributes:
        runs: how the file runs, in a phrase; or `no`.
        answers: the comparison with the file's own runtime; or why the file is refused; empty if it was not compiled.
        shapes: the shapes that were given for open inputs.
    """

    runs: str
    answers: str = ""
    shapes: str = ""

    @property
    def is_refused(self) -> bool:
        return self.runs == "no"


def check(file: Path, shapes: str, *, compiles: bool) -> Found:
    """Inspects a file, and compiles it if `compiles` is true."""
    facts = _octet("inspect", str(file), *_given(shapes))
    if "error" in facts and not shapes and (shapes := open_shapes(facts.get("inputs", ()))):
        facts = _octet("inspect", str(file), *_given(shapes))
    if "error" in facts:
        return Found("no", _refusal(facts["error"]), shapes)
    answers = _compiled(file, shapes) if compiles else ""
    return Found(_runs(facts), answers, shapes)


def _given(shapes: str) -> list[str]:
    return ["--input-shape", shapes] if shapes else []


def _runs(facts: Mapping[str, Any]) -> str:
    if not facts["floating"]:
        return "in integers"
    share = 100 * facts["integer_macs"] / facts["macs"] if facts["macs"] else 100.0
    count = sum(each["count"] for each in facts["floating"])
    return f"{share:.3g} % in integers, {count} operators in float" if facts["weights"] else "in float"


def _compiled(file: Path, shapes: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        document = _octet("compile", str(file), "--output", folder, "--accept-differences", *_given(shapes))
    if "error" in document:
        return f"not built: {_refusal(document['error'])}"
    numerics = document["reports"]["numerics"]
    return f"{numerics['outcome']}: {numerics.get('summary') or numerics.get('reason', '')}".removesuffix(": ")


def _refusal(error: Mapping[str, Any]) -> str:
    text = " ".join(str(error["message"]).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _octet(command: str, *arguments: str) -> dict[str, Any]:
    """Runs a command and returns the JSON document that it prints."""
    try:
        done = subprocess.run(_words(command, arguments), capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"error": {"message": f"octet {command} took more than {_LIMIT_S} s"}}
    lines = done.stdout.strip().splitlines()
    if not lines:
        return {"error": {"message": f"octet {command} ended with status {done.returncode}: {done.stderr[-_LONGEST:]}"}}
    document: dict[str, Any] = json.loads(lines[-1])
    return document


def _words(command: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "service.cli", command, *arguments, "--json"]
