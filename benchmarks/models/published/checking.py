"""Checks a model file: imports it as `octet inspect` does, and compiles it with `octet compile`."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.models.published.shapes import open_shapes
from service.compiler.importers.auto import import_model
from service.compiler.importers.facts import facts_of
from service.compiler.importers.outline import outline_of
from service.compiler.importers.uploads import upload_of
from service.core.builds.fixed import parse_fixed
from service.core.builds.options import parse_shapes
from service.core.errors import OctetError

_LIMIT_S = 1200
_LONGEST = 200  # characters of a reason in the table


@dataclass(frozen=True)
class Found:
    """The result of checking a file.

    Attributes:
        runs: how the file runs, in a phrase; or `no`.
        answers: the comparison with the file's own runtime; or why the file is refused; empty if it was not compiled.
        shapes: the shapes that were given for open inputs.
        cpu_s: the processor time of the build, with everything that it checks; None if the file was not compiled.
    """

    runs: str
    answers: str = ""
    shapes: str = ""
    cpu_s: float | None = None

    @property
    def is_refused(self) -> bool:
        return self.runs == "no"


def check(file: Path, shapes: str, fixed: str = "", *, compiles: bool) -> Found:
    """Imports a file, and compiles it if `compiles` is true."""
    facts = _inspect(file, shapes, fixed)
    if "error" in facts and not shapes and (shapes := open_shapes(facts.get("inputs", ()))):
        facts = _inspect(file, shapes, fixed)
    if "error" in facts:
        return Found("no", _refusal(facts["error"]), shapes)
    if not compiles:
        return Found(_runs(facts), "", shapes)
    before_s = _children_s()
    answers = _compiled(file, shapes, fixed)
    return Found(_runs(facts), answers, shapes, _children_s() - before_s)


def _children_s() -> float:
    """Returns the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _given(shapes: str, fixed: str) -> list[str]:
    return [*(["--input-shape", shapes] if shapes else []), *(["--fix", fixed] if fixed else [])]


def _inspect(file: Path, shapes: str, fixed: str) -> dict[str, Any]:
    """Returns the facts or the outline of a file, which a forked process reads. So a file that crashes the process or
    takes too long does not stop the others, and TVM is loaded once.
    """
    fork = get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_import, args=(file, shapes, fixed, sender))
    child.start()
    sender.close()
    try:
        if receiver.poll(_LIMIT_S):
            found: dict[str, Any] = json.loads(receiver.recv_bytes())
            return found
        return {"error": {"message": f"the import took more than {_LIMIT_S} s"}}
    except EOFError:
        child.join()
        return {"error": {"message": f"the import ended with exit status {child.exitcode}"}}
    finally:
        child.kill()
        child.join()


def _import(file: Path, shapes: str, fixed: str, sender: Connection) -> None:
    with upload_of(file) as upload:  # packs an ONNX file with its external data
        data = upload.read_bytes()
    try:
        imported = import_model(data, shapes=parse_shapes(shapes), fixed=parse_fixed(fixed))
        document = facts_of(imported).to_json()
    except OctetError as error:
        try:
            document = outline_of(data, error).to_json()
        except OctetError as other:
            document = {"error": other.to_json()}
    sender.send_bytes(json.dumps(document).encode())


def _runs(facts: Mapping[str, Any]) -> str:
    if not facts["floating"]:
        return "in integers"
    share = 100 * facts["integer_macs"] / facts["macs"] if facts["macs"] else 100.0
    count = sum(each["count"] for each in facts["floating"])
    return f"{share:.3g} % in integers, {count} operators in float" if facts["weights"] else "in float"


def _compiled(file: Path, shapes: str, fixed: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        document = _octet("compile", str(file), "--output", folder, "--accept-differences", *_given(shapes, fixed))
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
