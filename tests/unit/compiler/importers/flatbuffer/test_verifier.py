"""The verifier refuses damaged files, and its message names the damaged position."""

from __future__ import annotations

import struct
import time

import flatbuffers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.flatbuffer.verifier import verify
from service.compiler.importers.tflite.file.schema import MODEL as SCHEMA
from service.core.errors import MalformedModel
from tests.support.tflite_catalog import MODELS

MODEL = MODELS["conv int8"]()


def patched(position: int, value: int) -> bytes:
    return MODEL[:position] + struct.pack("<I", value) + MODEL[position + 4 :]


def table_position(data: bytes) -> int:
    return int(struct.unpack_from("<I", data)[0])


def field_position(data: bytes, table: int, slot: int) -> int:
    vtable = table - struct.unpack_from("<i", data, table)[0]
    return table + int(struct.unpack_from("<H", data, vtable + 4 + 2 * slot)[0])


@pytest.mark.parametrize("name", MODELS)
def test_valid_models_are_accepted(name: str) -> None:
    verify(MODELS[name](), SCHEMA)


@pytest.mark.parametrize("size", [0, 1, 4, 7, 8, 11])
def test_a_file_that_is_too_short_is_refused(size: int) -> None:
    with pytest.raises(MalformedModel):
        verify(MODEL[:size], SCHEMA)


def test_every_truncation_is_refused() -> None:
    for size in range(len(MODEL) - 8):  # the last bytes may be padding to which nothing refers
        with pytest.raises(MalformedModel):
            verify(MODEL[:size], SCHEMA)


def test_another_file_identifier_is_refused() -> None:
    with pytest.raises(MalformedModel, match="identifier"):
        verify(MODEL[:4] + b"TFL2" + MODEL[8:], SCHEMA)


@pytest.mark.parametrize("offset", [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_root_offset_outside_the_file_is_refused(offset: int) -> None:
    with pytest.raises(MalformedModel, match="at Model, "):
        verify(patched(0, offset), SCHEMA)


@pytest.mark.parametrize("offset", [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_field_offset_outside_the_file_is_named(offset: int) -> None:
    subgraphs = field_position(MODEL, table_position(MODEL), 2)
    with pytest.raises(MalformedModel, match=r"at Model\.subgraphs, the offset"):
        verify(patched(subgraphs, offset), SCHEMA)


@pytest.mark.parametrize("length", [1 << 20, 0x40000001, 0xFFFFFFFF])
def test_a_vector_longer_than_the_file_is_named(length: int) -> None:
    buffers = field_position(MODEL, table_position(MODEL), 4)
    vector = buffers + struct.unpack_from("<I", MODEL, buffers)[0]
    with pytest.raises(MalformedModel, match=rf"at Model\.buffers, the vector of {length} items lies outside"):
        verify(patched(vector, length), SCHEMA)


@pytest.mark.parametrize("distance", [1 << 30, -(1 << 30)])
def test_a_vtable_outside_the_file_is_refused(distance: int) -> None:
    with pytest.raises(MalformedModel, match="vtable"):
        verify(patched(table_position(MODEL), distance & 0xFFFFFFFF), SCHEMA)


@pytest.mark.parametrize("size", [0, 2, 5, 0xFFFF])
def test_a_vtable_of_an_impossible_size_is_refused(size: int) -> None:
    table = table_position(MODEL)
    vtable = table - struct.unpack_from("<i", MODEL, table)[0]
    with pytest.raises(MalformedModel, match="vtable"):
        verify(MODEL[:vtable] + struct.pack("<H", size) + MODEL[vtable + 2 :], SCHEMA)


def test_an_unterminated_string_is_refused() -> None:
    end = MODEL.index(b"weights\0") + len(b"weights")
    with pytest.raises(MalformedModel, match=r"tensors\[\d+\]\.name, the string is not terminated"):
        verify(MODEL[:end] + b"!" + MODEL[end + 1 :], SCHEMA)


def test_parts_that_are_shared_too_often_are_refused() -> None:
    """The file has ten thousand references to one tensor with a long shape. It has 60 KB, but reading it would take 400
    MB.
    """
    verify(shared_tensor_file(references=1, rank=10_000), SCHEMA)
    with pytest.raises(MalformedModel, match="overlap"):
        verify(shared_tensor_file(references=10_000, rank=10_000), SCHEMA)


def test_tables_beyond_the_limit_are_refused_in_bounded_time() -> None:
    started = time.process_time()
    with pytest.raises(MalformedModel, match="more than 250000 tables"):
        verify(shared_tensor_file(references=260_000, rank=0), SCHEMA)
    assert time.process_time() - started < 30  # usually less than one second


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(tail: bytes) -> None:
    with pytest.raises(MalformedModel):
        verify(tail[:4].ljust(4, b"\1") + b"TFL3" + tail[4:], SCHEMA)


def shared_tensor_file(references: int, rank: int) -> bytes:
    """Returns a file whose subgraph lists the same tensor `references` times."""
    builder = flatbuffers.Builder(0)
    builder.StartVector(4, rank, 4)
    for _ in range(rank):
        builder.PrependInt32(1)
    shape = builder.EndVector()
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(0, shape, 0)
    tensor = builder.EndObject()
    builder.StartVector(4, references, 4)
    for _ in range(references):
        builder.PrependUOffsetTRelative(tensor)
    tensors = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, tensors, 0)
    subgraph = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(subgraph)
    subgraphs = builder.EndVector()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(2, subgraphs, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TFL3")
    return bytes(builder.Output())
