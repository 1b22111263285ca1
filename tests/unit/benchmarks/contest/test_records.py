from pathlib import Path

import pytest

from benchmarks.contest.records import Entry, Model, Record, Slice, read
from benchmarks.harness.records import write
from benchmarks.harness.turn import Turn
from tests.unit.benchmarks.contest.recorded import RUN

RECORDS: list[Record] = [
    RUN,
    Model("net", "Net", "random weights", 8, 123),
    Entry("net", "litert", 2, [0, 1], {"version": "2.3.0"}),
    Entry("net", "torch", 1, [0], {}, "it died"),
    Slice("net", "litert", 2, 3, 1, Turn(10, 1.5, 1.25, 1.75, 0.05)),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_a_record_survives_a_round_trip(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with path.open("w") as file:
        write(file, record)
    assert path.read_text().count("\n") == 1
    assert list(read([path])) == [record]


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    paths = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for path, records in zip(paths, (RECORDS[:2], RECORDS[2:]), strict=True):
        with path.open("w") as file:
            for record in records:
                write(file, record)
    assert list(read(paths)) == RECORDS


def test_another_type_of_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "speech.jsonl"
    path.write_text('{"kind": "speech"}\n')
    with pytest.raises(KeyError, match="speech"):
        list(read([path]))
