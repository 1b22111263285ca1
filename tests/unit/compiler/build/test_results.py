"""The cache of children's results returns a result only for the inputs for which it was stored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.compiler.build.object_cache import ObjectCache
from service.compiler.build.results import Results, sweep

QUESTION = {"role": "oracle", "source": "sha256:a", "numerics": "xnnpack"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "from" / "expected.npz"
    path.parent.mkdir()
    path.write_bytes(b"vectors")
    return path


@pytest.fixture
def into(tmp_path: Path) -> Path:
    path = tmp_path / "into"
    path.mkdir()
    return path


def test_a_cached_result_is_returned_with_its_files(tmp_path: Path, file: Path, into: Path) -> None:
    results = Results(tmp_path / "results", 1 << 20)
    assert results.take(QUESTION, into) is None
    results.keep(QUESTION, {"format": "tflite"}, [file])
    file.write_bytes(b"changed since")
    assert results.take(QUESTION, into) == {"format": "tflite"}
    assert (into / file.name).read_bytes() == b"vectors"


@pytest.mark.parametrize("other", [{"source": "sha256:b"}, {"numerics": "litert-reference"}, {"role": "import"}])
def test_other_inputs_have_no_cached_result(other: dict[str, str], tmp_path: Path, file: Path, into: Path) -> None:
    results = Results(tmp_path / "results", 1 << 20)
    results.keep(QUESTION, {}, [file])
    assert results.take({**QUESTION, **other}, into) is None


def test_a_result_that_is_cached_already_is_not_replaced(tmp_path: Path, file: Path, into: Path) -> None:
    results = Results(tmp_path / "results", 1 << 20)
    results.keep(QUESTION, {"n": 1}, [file])
    results.keep(QUESTION, {"n": 2}, [file])
    assert results.take(QUESTION, into) == {"n": 1}
    assert [path.name for path in (tmp_path / "results").iterdir() if path.name.startswith(".")] == []


def test_the_least_recently_used_results_are_evicted(tmp_path: Path, file: Path, into: Path) -> None:
    results = Results(tmp_path / "results", 250)
    questions = [{**QUESTION, "source": name} for name in "abc"]
    file.write_bytes(b"x" * 60)
    for question in questions[:2]:
        results.keep(question, {}, [file])
    for index, entry in enumerate(sorted((tmp_path / "results").iterdir())):
        os.utime(entry, (index, index))
    assert results.take(questions[0], into) is not None  # this result was stored first, but used last
    results.keep(questions[2], {}, [file])
    assert [results.take(question, into) is not None for question in questions] == [True, False, True]


@pytest.mark.parametrize("name", [".partial-1234", ".0123456789abcdef"])
def test_incomplete_files_of_a_killed_process_are_removed(tmp_path: Path, name: str) -> None:
    old, new = tmp_path / name, tmp_path / f"{name}-of-now"
    for each in (old, new):
        if name.startswith(".partial"):
            each.mkdir()
            (each / "answer.json").write_text("{")
        else:
            each.write_bytes(b"half")
    os.utime(old, (0, 0))
    if name.startswith(".partial"):
        sweep(tmp_path)
    else:
        ObjectCache(tmp_path).sweep()
    assert [each.name for each in tmp_path.iterdir()] == [new.name]
