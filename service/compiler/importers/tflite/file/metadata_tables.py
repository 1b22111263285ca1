"""Reads a FlatBuffer of TFLite metadata into plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.compiler.importers.flatbuffer.tables import Row, read_root
from service.compiler.importers.tflite.file.metadata_schema import (
    BERT_OPTIONS,
    METADATA,
    NORMALIZATION_OPTIONS,
    REGEX_OPTIONS,
)
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
        name: the purpose of the tensor, such as `ids`; empty if none is given.
        content: a member of the union ContentProperties; 0 if there is none.
    """

    name: str
    content: int
    normalizations: tuple[Normalization, ...]
    files: tuple[AssociatedFile, ...]


@dataclass(frozen=True)
class TokenizerOptions:
    """The tokenizer that converts a text to the inputs.

    Attributes:
        is_bert: true for WordPiece; otherwise, words are separated by `pattern`.
        vocabulary: the name of the file with the vocabulary.
    """

    is_bert: bool
    vocabulary: str
    pattern: str = ""


@dataclass(frozen=True)
class SubgraphMetadata:
    """The metadata of the main subgraph; inputs and outputs are in its order."""

    inputs: tuple[TensorMetadata, ...] = ()
    outputs: tuple[TensorMetadata, ...] = ()
    tokenizer: TokenizerOptions | None = None


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
    units = [*subgraphs[0].tables("input_process_units")]
    for tensor in subgraphs[0].tables("input_tensor_metadata"):
        units += tensor.tables("process_units")
    return SubgraphMetadata(inputs, outputs, next(filter(None, map(_tokenizer, units)), None))


def _tokenizer(unit: Row) -> TokenizerOptions | None:
    kind = unit.unsigned("options_type")
    options = unit.table("options") if kind in (BERT_OPTIONS, REGEX_OPTIONS) else None
    files = options.tables("vocab_file") if options is not None else ()
    if options is None or not files:
        return None
    pattern = options.text("delim_regex_pattern") if kind == REGEX_OPTIONS else ""
    return TokenizerOptions(kind == BERT_OPTIONS, files[0].text("name"), pattern)


def _tensor(reader: Row) -> TensorMetadata:
    content = reader.table("content")
    return TensorMetadata(
        reader.text("name"),
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
