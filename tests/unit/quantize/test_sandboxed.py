"""The parent of a quantizing child process does not trust the child's messages and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.compiler.messages.checking import ArtifactFiles
from service.core.builds.build import Stage
from service.core.builds.quantization import LatencyBudget, QuantizationOptions, Raised
from service.core.errors import BuildFailed
from service.core.settings import Settings
from service.quantize import sandboxed
from service.quantize.sandboxed import Request


class Told:
    def __init__(self) -> None:
        self.reports: list[object] = []

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        self.reports.append((stage, fraction))

    def log(self, line: str) -> None:
        self.reports.append(line)


@pytest.fixture
def session(tmp_path: Path) -> sandboxed._Session:
    own, made = tmp_path / "own", tmp_path / "made"
    own.mkdir()
    made.mkdir()
    (own / "model").write_bytes(b"a model")

    def start(function: Callable[[Callable[[], None]], ArtifactFiles]) -> Future[ArtifactFiles]:
        return Future()

    request = Request(tmp_path / "model.onnx", tmp_path / "x.npz", QuantizationOptions())
    return sandboxed._Session(request, own, made, Told(), Settings(max_upload_bytes=100), start)


def test_a_requested_build_reads_a_copy(session: sandboxed._Session) -> None:
    session.handle_message({"make": "model"})
    (session._own / "model").write_bytes(b"another")
    assert (session._made / "1.onnx").read_bytes() == b"a model"


@pytest.mark.parametrize("name", ["nothing", "../../x", "..", "", "folder", "link", "pipe", "large"])
def test_files_that_are_not_accepted_for_builds(session: sandboxed._Session, name: str) -> None:
    own = session._own
    (own.parent / "x").write_bytes(b"somebody else's")
    (own / "folder").mkdir()
    (own / "link").symlink_to("model")
    os.mkfifo(own / "pipe")
    (own / "large").write_bytes(bytes(101))
    with pytest.raises(BuildFailed, match=r"the quantize process (did not write|wrote)"):
        session.handle_message({"make": name})


def test_the_number_of_builds_is_limited(session: sandboxed._Session) -> None:
    session.handle_message({"make": "model"})
    with pytest.raises(BuildFailed, match="too many builds"):  # the first build has not finished yet
        session.handle_message({"make": "model"})
    session._built, session._count = None, 64
    with pytest.raises(BuildFailed, match="too many builds"):
        session.handle_message({"make": "model"})


def test_only_discarded_builds_are_removed(session: sandboxed._Session) -> None:
    session.handle_message({"make": "model"})
    session.handle_message({"discard": 1})
    assert (session._made / "1").is_dir(), "a build in progress must stay"
    session._built = None
    for number in (0, -1, 2):
        session.handle_message({"discard": number})
    assert sorted(path.name for path in session._made.iterdir()) == ["1", "1.onnx"]
    session.handle_message({"discard": 1})
    assert not [*session._made.iterdir()]


def test_a_failed_build_ends_the_quantization(session: sandboxed._Session) -> None:
    session.handle_message({"make": "model"})
    assert session._built is not None
    session._built.set_exception(BuildFailed("it does not link"))
    with pytest.raises(BuildFailed, match="it does not link"):
        session.poll()
    assert not (session._made / "1.json").exists()


def test_progress_is_passed_on(session: sandboxed._Session) -> None:
    session.handle_message({"stage": "rank", "fraction": 0.5})
    session.handle_message({"log": "extremes: 32 inputs"})
    session.poll()
    assert session._progress.reports == [(Stage.RANK, 0.5), "extremes: 32 inputs", (Stage.RANK, 0.5)]  # type: ignore[attr-defined]


def test_options_survive_json() -> None:
    bounds: dict[str, Any] = {"budget": 0.01, "latency_budget": LatencyBudget(1.2, "x")}
    options = QuantizationOptions(keep=("a",), wide=("b",), bfloat16=("c",), rounds=2, **bounds)
    members = json.loads(json.dumps(options.to_json()))
    assert QuantizationOptions.from_json(members) == options
    narrow = replace(options, raise_to=Raised.BFLOAT16)
    assert QuantizationOptions.from_json(json.loads(json.dumps(narrow.to_json()))) == narrow
    assert members["latency_budget"] == "1.2x"
    del members["latency_budget"]
    del (
        members["raise_to"],
        members["bfloat16"],
        members["wide"],
        members["correct_bias"],
        members["rounds"],
        members["dynamic"],
    )  # the options of builds by older versions do not have it
    assert QuantizationOptions.from_json(members) == QuantizationOptions(keep=("a",), correct_bias=False, budget=0.01)
