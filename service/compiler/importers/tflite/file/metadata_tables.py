"""Reads a FlatBuffer of TFLite metadata into plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.compiler.importers.flatbuffer.tables import Row, read_root
from service.compiler.importers.tflite.file.metadata_schema import METADATA, NORMALIZATION_OPTIONS
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
    subgraphs = read_root(data, METADATA).tables("subgraph_metadata")
    if not subgraphs:
        return SubgraphMetadata()
    inputs, outputs = (
        tuple(map(_tensor, subgraphs[0].tables(name))) for name in ("input_tensor_metadata", "output_tensor_metadata")
    )
    return SubgraphMetadata(inputs, outputs)


def _tensor(reader: Row) -> TensorMetadata:
    content = reader.table("content")
    return TensorMetadata(
        content.unsigned("content_properties_type") if content else 0,
        tuple(_normalizations(reader)),
        tuple(
            AssociatedFile(each.text("name"), each.unsigned("type"), each.text("locale"))
            for each in reader.tables("associated_files")
        ),
    )


def _normalizations(reader: Row) -> Iterator[Normalization]:
    for unit in reader.tables("process_units"):
        options = unit.table("options") if unit.unsigned("options_type") == NORMALIZATION_OPTIONS else None
        if options is not None:
            mean, std = (tuple(map(float, options.numbers(name, "float32"))) for name in ("mean", "std"))
            yield Normalization(mean, std)
