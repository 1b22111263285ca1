"""Writes bundles of TFLite models: archives, and containers of LiteRT-LM."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

import flatbuffers

_BLOCK = 1 << 14
MODEL, TOKENIZER = 3, 4  # AnySectionDataType


def archive(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, method)
    return packed.getvalue()


def container(sections: Sequence[tuple[str, int, bytes]], *, shift: int = 0) -> bytes:
    """Returns a container of sections: model type ("" for none), data type and content. `shift` is added to the begin
    of each section.
    """
    bounds, begin = [], _BLOCK
    for _, _, data in sections:
        bounds.append((begin + shift, begin + len(data)))
        begin += -(-len(data) // _BLOCK) * _BLOCK
    header = _header([(name, kind, *ends) for (name, kind, _), ends in zip(sections, bounds, strict=True)])
    whole = bytearray(struct.pack("<8s4IQ", b"LITERTLM", 1, 5, 0, 0, 32 + len(header)) + header)
    for (_, _, data), (first, _) in zip(sections, bounds, strict=True):
        whole += bytes(first - shift - len(whole)) + data
    return bytes(whole)


def _header(sections: Sequence[tuple[str, int, int, int]]) -> bytes:
    builder = flatbuffers.Builder(0)
    objects = []
    for name, kind, begin, end in sections:
        items = _vector(builder, [_item(builder, name)] if name else [])
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(0, items, 0)
        builder.PrependUint64Slot(1, begin, 0)
        builder.PrependUint64Slot(2, end, 0)
        builder.PrependUint8Slot(3, kind, 0)
        objects.append(builder.EndObject())
    listed = _vector(builder, objects)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, listed, 0)
    metadata = builder.EndObject()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, metadata, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _item(builder: flatbuffers.Builder, value: str) -> int:
    key, text = builder.CreateString("model_type"), builder.CreateString(value)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, text, 0)
    held = builder.EndObject()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(0, key, 0)
    builder.PrependUint8Slot(1, 9, 0)  # VData.StringValue
    builder.PrependUOffsetTRelativeSlot(2, held, 0)
    return int(builder.EndObject())


def _vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
