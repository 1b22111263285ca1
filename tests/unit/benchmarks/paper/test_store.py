from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.paper.store import MEASURED, Measurement, read, store
from tests.unit.benchmarks.paper.samples import measurement


def test_a_new_measurement_replaces_the_older_one_of_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "measured.jsonl"
    first, second = measurement("memory", "a", weights=1), measurement("memory", "b", weights=2)
    newer = measurement("memory", "a", day="2026-03-04", weights=3)
    store([first, second], path)
    store([newer], path)
    assert read(path) == [newer, second]


def test_measurements_before_an_error_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "measured.jsonl"
    first = measurement("memory", "a", weights=1)

    def interrupted() -> Iterator[Measurement]:
        yield first
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store(interrupted(), path)
    assert read(path) == [first]


def test_a_line_that_is_not_a_measurement_is_named(tmp_path: Path) -> None:
    path = tmp_path / "measured.jsonl"
    store([measurement("memory", "a", weights=1)], path)
    path.write_text(path.read_text() + '{"part": "memory"}\n')
    with pytest.raises(ValueError, match=r"measured.jsonl, line 2 is not a measurement"):
        read(path)


def test_without_a_file_nothing_is_measured(tmp_path: Path) -> None:
    assert read(tmp_path / "measured.jsonl") == []


def test_the_stored_measurements_can_be_read() -> None:
    assert "accuracy" in {each.part for each in read(MEASURED)}
