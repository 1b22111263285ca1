"""Protobuf's wire format is read safely from untrusted files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.onnx.file.wire import Budget, fields, varints
from service.core.errors import MalformedModel, Unsupported
from tests.support.onnx_builder import message, number, varint


def read(data: bytes) -> list[tuple[int, object]]:
    found = fields(memoryview(data), "Model", Budget())
    return [(field.number, field.value if isinstance(field.value, int) else bytes(field.value)) for field in found]


def test_fields_are_read_in_order() -> None:
    assert read(number(1, 300) + message(2, "text") + number(1, 0)) == [(1, 300), (2, b"text"), (1, 0)]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x08", "cut short"),
        (b"\x08\xff", "cut short"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "ten bytes"),
        (b"\x12\x05abc", "5 bytes, but only 3 are left"),
        (b"\x12" + varint(1 << 62), "are left"),
        (b"\x0d\x00\x00", "cut short"),
        (b"\x0b", "wire type 3"),
        (b"\x00\x01", "number 0"),
    ],
)
def test_malformed_messages_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(MalformedModel, match=what):
        read(data)


def test_the_number_of_fields_is_limited() -> None:
    with pytest.raises(Unsupported, match="fields"):
        list(fields(memoryview(number(1, 1) * 11), "Model", Budget(10)))


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_packed_numbers_are_read_back(values: list[int]) -> None:
    packed = b"".join(map(varint, values))
    assert varints(memoryview(packed), "here").tolist() == values
