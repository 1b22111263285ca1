"""Reads a FlatBuffer of TFLite metadata into plain values. No package that Octet uses has generated readers for its
schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flatbuffers import number_types
from flatbuffers.table import Table

from service.compiler.importers.tflite.accessors import text
from service.compiler.importers.tflite.file.flatbuffer import verify
from service.compiler.importers.tflite.file.metadata_schema import METADATA, NORMALIZATION_OPTIONS, TABLES
from service.compiler.importers.tflite.file.schema import Ref, Refs, Union
from service.core.errors import MalformedModel

_MOST_BYTES = 1 << 18  # the usual size is hundreds of bytes, because labels are in separate files


@dataclass(frozen=True)
class AssociatedFile:
    """A file in the archive after the model.

    Attributes:
        kind: a value of AssociatedFileType.
        locale: the file's language; empty if none is given.
    """

    name: str
    kind: int
    locale: str


@dataclass(frozen=True)
class Normalization:
    """The input is (pixel - mean) / std, with pixels of 0 to 255. Mean and std have one number for each channel, or one
    for all.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class TensorMetadata:
    """The metadata of one input or output.

    Attributes:
        content: a member of the union ContentProperties; 0 if there is none.
    """

    content: int
    normalizations: tuple[Normalization, ...]
    files: tuple[AssociatedFile, ...]


@dataclass(frozen=True)
class SubgraphMetadata:
    """The metadata of the main subgraph; inputs and outputs are in its order."""

    inputs: tuple[TensorMetadata, ...] = ()
    outputs: tuple[TensorMetadata, ...] = ()


def read_tables(data: bytes) -> SubgraphMetadata:
    """Returns the metadata of the main subgraph.

    Raises:
        MalformedModel: the metadata is not well formed.
    """
    if len(data) > _MOST_BYTES:
        raise MalformedModel(f"the TFLite metadata has {len(data)} bytes; the limit is {_MOST_BYTES}")
    verify(data, METADATA)
    root = Table(data, int.from_bytes(data[:4], "little"))
    subgraphs = _Reader("ModelMetadata", root).tables("subgraph_metadata")
    if not subgraphs:
        return SubgraphMetadata()
    inputs, outputs = (
        tuple(map(_tensor, subgraphs[0].tables(name))) for name in ("input_tensor_metadata", "output_tensor_metadata")
    )
    return SubgraphMetadata(inputs, outputs)


class _Reader:
    """Reads the fields of one table by the schema's names."""

    def __init__(self, name: str, table: Table) -> None:
        self._name, self._table = name, table

    def byte(self, field: str) -> int:
        at = self._at(field)
        return int(self._table.Get(number_types.Uint8Flags, self._table.Pos + at)) if at else 0

    def text(self, field: str) -> str:
        at = self._at(field)
        return text(self._table.String(self._table.Pos + at)) if at else ""

    def floats(self, field: str) -> tuple[float, ...]:
        at = self._at(field)
        values: Any = self._table.GetVectorAsNumpy(number_types.Float32Flags, at) if at else ()
        return tuple(map(float, values))

    def table(self, field: str) -> _Reader | None:
        at = self._at(field)
        return _Reader(self._child(field), self._behind(self._table.Pos + at)) if at else None

    def tables(self, field: str) -> Sequence[_Reader]:
        at = self._at(field)
        if not at:
            return ()
        start, length = self._table.Vector(at), self._table.VectorLen(at)
        return [_Reader(self._child(field), self._behind(start + 4 * index)) for index in range(length)]

    def _at(self, field: str) -> int:
        slot, _ = TABLES[self._name][field]
        return int(self._table.Offset(4 + 2 * slot))

    def _behind(self, position: int) -> Table:
        return Table(self._table.Bytes, self._table.Indirect(position))

    def _child(self, field: str) -> str:
        _, kind = TABLES[self._name][field]
        if isinstance(kind, Union):
            return kind.tables[self.byte(kind.selector)]
        assert isinstance(kind, Ref | Refs)
        return kind.table


def _tensor(reader: _Reader) -> TensorMetadata:
    content = reader.table("content")
    return TensorMetadata(
        content.byte("content_properties_type") if content else 0,
        tuple(_normalizations(reader)),
        tuple(
            AssociatedFile(each.text("name"), each.byte("type"), each.text("locale"))
            for each in reader.tables("associated_files")
        ),
    )


def _normalizations(reader: _Reader) -> Iterator[Normalization]:
    for unit in reader.tables("process_units"):
        options = unit.table("options") if unit.byte("options_type") == NORMALIZATION_OPTIONS else None
        if options is not None:
            yield Normalization(options.floats("mean"), options.floats("std"))
