"""The parts of a program's file: the FlatBuffer, and the segments of data after it.

A header after the FlatBuffer's identifier gives the size of the FlatBuffer and the position of the segments
(schema/extended_header.cpp). Files of older writers have no header, and no segments.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from service.compiler.importers.executorch.file.program_schema import PROGRAM
from service.compiler.importers.flatbuffer.tables import Row, read_root
from service.core.errors import MalformedModel

_HEADER = struct.Struct("<4sIQQ")  # magic, length, size of the FlatBuffer, position of the segments
_HEADER_POSITION, _MAGIC = 8, b"eh00"
_DAMAGED = "the file is damaged or was cut short; upload it again"


@dataclass(frozen=True, eq=False)
class Segments:
    """The file's root table, and its segments.

    Attributes:
        root: the table Program.
        segments: views of the file.
    """

    root: Row
    segments: tuple[memoryview, ...] = field(repr=False)

    def segment(self, index: int, what: str) -> memoryview:
        """Returns a segment. `what` refers to it."""
        if index >= len(self.segments):
            raise MalformedModel(f"{what} is in segment {index}, but the file has {len(self.segments)}", hint=_DAMAGED)
        return self.segments[index]

    def part(self, segment: memoryview, start: int, size_bytes: int, what: str) -> memoryview:
        if start + size_bytes > len(segment):
            raise MalformedModel(
                f"{what} takes {size_bytes} bytes at {start}, but only {len(segment)} are stored", hint=_DAMAGED
            )
        return segment[start : start + size_bytes]


def read_segments(data: bytes) -> Segments:
    """Verifies the file and returns its parts.

    Raises:
        MalformedModel: a part is outside of the file, or malformed.
    """
    view = memoryview(data)
    program, base = view, len(data)
    if data[_HEADER_POSITION : _HEADER_POSITION + len(_MAGIC)] == _MAGIC:
        if len(data) < _HEADER_POSITION + _HEADER.size:
            raise MalformedModel("the file ends inside of its header", hint=_DAMAGED)
        _, length, program_bytes, base = _HEADER.unpack_from(data, _HEADER_POSITION)
        base = base or len(data)  # a program without segments
        if length < _HEADER.size or program_bytes > len(data) or base > len(data):
            raise MalformedModel(
                f"the header declares a program of {program_bytes} bytes and segments at {base}, but the file has "
                f"{len(data)} bytes",
                hint=_DAMAGED,
            )
        program = view[:program_bytes]
    root = read_root(program, PROGRAM)
    return Segments(root, tuple(_segment(view[base:], row, index) for index, row in enumerate(root.tables("segments"))))


def _segment(data: memoryview, row: Row, index: int) -> memoryview:
    offset, size_bytes = row.unsigned("offset"), row.unsigned("size")
    if offset + size_bytes > len(data):
        raise MalformedModel(f"segment {index} lies outside the file", hint=_DAMAGED)
    return data[offset : offset + size_bytes]
