"""Writes TFLite metadata by the slots of `metadata_schema.fbs`, and appends files in the same way as tflite-support's
tools.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

from tests.support.tflite_builder import serialize

FEATURE, IMAGE = 1, 2
AXIS_LABELS, VALUE_LABELS = 2, 3


@dataclass(frozen=True)
class Described:
    """The metadata of one input or output.

    Attributes:
        files: the name, type and locale of each associated file.
        name: the purpose of the tensor.
    """

    content: int = 0
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    files: Sequence[tuple[str, int, str]] = ()
    name: str = ""


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer in the metadata: BERT's, or one that splits at a regular expression.

    Attributes:
        vocabulary: the name of the file with the vocabulary.
        pattern: the regular expression; empty for BERT's tokenizer.
    """

    vocabulary: str
    pattern: str = ""


def labels_in(name: str = "labels.txt", locale: str = "") -> Described:
    return Described(files=[(name, AXIS_LABELS, locale)])


def metadata_buffer(
    inputs: Sequence[Described],
    outputs: Sequence[Described],
    identifier: bytes = b"M001",
    tokenizer: Tokenizer | None = None,
) -> bytes:
    builder = flatbuffers.Builder(1024)
    described = [_vector(builder, [_tensor(builder, each) for each in ends]) for ends in (inputs, outputs)]
    fields = {2 + index: offset for index, offset in enumerate(described)}
    if tokenizer is not None:
        fields[5] = _vector(builder, [_tokenizer(builder, tokenizer)])
    subgraph = _table(builder, 7, fields)
    subgraphs = _vector(builder, [subgraph])
    name = builder.CreateString("a model")
    builder.Finish(_table(builder, 8, {0: name, 3: subgraphs}), file_identifier=identifier)
    return bytes(builder.Output())


def with_metadata(
    model: bytes,
    metadata: bytes,
    files: Mapping[str, str | bytes] | None = None,
    method: int = zipfile.ZIP_STORED,
    buffer: int | None = None,
) -> bytes:
    """Returns `model` with a buffer that contains metadata, followed by an archive of files.

    Args:
        buffer: the buffer index in the model's metadata entry; by default the correct one.
    """
    whole: Any = schema.ModelT.InitFromPackedBuf(model)
    whole.buffers.append(schema.BufferT(data=list(metadata)))
    entry = schema.MetadataT(name="TFLITE_METADATA", buffer=len(whole.buffers) - 1 if buffer is None else buffer)
    whole.metadata = [*(whole.metadata or []), entry]
    data = serialize(whole)
    return append_files(data, files, method) if files else data


def append_files(data: bytes, files: Mapping[str, str | bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO(data)
    with zipfile.ZipFile(target, "a", method) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return target.getvalue()


def _tokenizer(builder: Any, of: Tokenizer) -> int:
    files = _vector(builder, [_table(builder, 4, {0: builder.CreateString(of.vocabulary)})])
    if not of.pattern:
        return _table(builder, 2, {1: _table(builder, 1, {0: files})}, {0: 4})
    return _table(builder, 2, {1: _table(builder, 2, {0: builder.CreateString(of.pattern), 1: files})}, {0: 6})


def _tensor(builder: Any, of: Described) -> int:
    files = [
        _table(builder, 4, {0: builder.CreateString(name), 3: builder.CreateString(locale)}, {2: kind})
        for name, kind, locale in of.files
    ]
    fields = {6: _vector(builder, files)} if files else {}
    if of.name:
        fields[0] = builder.CreateString(of.name)
    if of.content:
        properties = _table(builder, 2, {})
        fields[3] = _table(builder, 3, {1: properties}, {0: of.content})
    if of.mean is not None or of.std is not None:
        numbers = {
            slot: _floats(builder, values) for slot, values in enumerate((of.mean, of.std)) if values is not None
        }
        fields[4] = _vector(builder, [_table(builder, 2, {1: _table(builder, 2, numbers)}, {0: 1})])
    return _table(builder, 7, fields)


def _table(builder: Any, slots: int, offsets: Mapping[int, int], octets: Mapping[int, int] | None = None) -> int:
    builder.StartObject(slots)
    for slot, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    for slot, value in (octets or {}).items():
        builder.PrependInt8Slot(slot, value, 0)
    return int(builder.EndObject())


def _vector(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _floats(builder: Any, values: Sequence[float]) -> int:
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependFloat32(value)
    return int(builder.EndVector())
