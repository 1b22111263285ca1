"""The parts of a program lie inside of its file."""

from __future__ import annotations

import struct

import pytest

from service.compiler.importers.executorch.file.segments import read_segments
from service.core.errors import MalformedModel
from tests.support.executorch_programs import program

DATA = program("embedded")


def test_segments_follow_the_program() -> None:
    assert all(len(segment) > 0 for segment in read_segments(DATA).segments)


@pytest.mark.parametrize("position", [16, 24])
def test_a_header_that_refers_outside_is_malformed(position: int) -> None:
    with pytest.raises(MalformedModel, match="the header declares"):
        read_segments(DATA[:position] + struct.pack("<Q", 1 << 40) + DATA[position + 8 :])


def test_a_segment_outside_of_the_file_is_malformed() -> None:
    with pytest.raises(MalformedModel, match="lies outside the file"):
        read_segments(DATA[:-200])
