"""Reads a folder with a published model: chooses a variant, and combines what its files define."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from service.compiler.importers.onnx.file.message import Values, read_message
from service.compiler.importers.published.configuration import CONFIG, MODULES, read_configuration
from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.pictures import PREPROCESSOR, read_pictures
from service.compiler.importers.published.texts import (
    LENGTHS,
    SENTENCES_CONFIG,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    read_text_processing,
)
from service.compiler.importers.published.tokenizers import check_tokenizer, read_tokenizer
from service.compiler.importers.published.variants import Variant, choose, variants_in
from service.core.errors import MalformedModel
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.target import Target

_POOLED = "sentence_embedding"  # the output of Optimum's exports of sentence-transformers
_USED = (CONFIG, MODULES, PREPROCESSOR, SENTENCES_CONFIG, SPECIAL_TOKENS, TOKENIZER_CONFIG, *LENGTHS)


@dataclass(frozen=True)
class Published:
    """A model as its publisher describes it.

    Attributes:
        variant: the variant to serve.
        variants: all variants in the folder.
        file: the file of the variant.
        metadata: the task, the labels and the processing that the folder defines, without a tokenizer.
        tokenizer: the bytes of `tokenizer.json`; empty without one.
        sources: the files that the tokenizer and the metadata come from.
        ignored: the remaining files.
    """

    variant: Variant
    variants: Sequence[Variant]
    file: Path
    metadata: ModelMetadata
    tokenizer: bytes
    sources: Sequence[str]
    ignored: Sequence[str]


def is_published(folder: Path) -> bool:
    """Returns true if a folder is not an artifact, so that `read_published` can read it."""
    return folder.is_dir() and not (folder / "oci-layout").exists()


def read_published(
    root: Path,
    variant: str | None = None,
    target: Target | None = None,
    tokenizer: Path | None = None,
    *,
    replaces_pooling: bool = False,
) -> Published:
    """Reads a folder.

    Args:
        variant: the variant to serve; None for the best (`variants.choose`).
        target: the target that the model will be compiled for, if it is determined.
        tokenizer: the file of a tokenizer that replaces that of the folder.
        replaces_pooling: true if the caller defines the pooling, so that the folder's is not read.

    Raises:
        InvalidInput: the folder contains no model, no such variant, a damaged file, or a symbolic link that leaves it.
        Unsupported: the folder defines a step that Octet does not compute.
    """
    folder = Folder(root)
    chosen = choose(folder, variant, target)
    file = folder.path(chosen.file)
    data, origin = (tokenizer.read_bytes(), tokenizer.name) if tokenizer else read_tokenizer(folder)
    members = check_tokenizer(data, origin) if data else {}
    outputs = _outputs(file)
    is_pooled = any(name == _POOLED for name, _ in outputs) or (bool(outputs) and outputs[0][1] == 2)
    metadata = read_configuration(folder).over(read_pictures(folder))
    if data:
        text = read_text_processing(folder, members, is_pooled=is_pooled or replaces_pooling)
        if any(name == _POOLED for name, _ in outputs[1:]):
            text = replace(text, output=_POOLED)
        metadata = replace(metadata, text=text)
    elif metadata.task is not None and metadata.task.is_about_text:
        metadata = replace(metadata, task=None)
    read = [name for name in folder.names if name in _USED or PurePosixPath(name).parent.name.endswith("_Pooling")]
    sources = sorted({*read, *([origin] if data and not tokenizer else [])})
    variants = variants_in(folder)
    of_models = [name for name in folder.names if any(name.startswith(each.file) for each in variants)]
    ignored = sorted(set(folder.names) - set(sources) - set(of_models))
    return Published(chosen, variants, file, metadata, data, sources, ignored)


def lacks_pooling(published: Published, metadata: ModelMetadata) -> bool:
    """Returns true if the model computes a vector for each token, and nothing defines how to combine them."""
    outputs = _outputs(published.file)
    wanted = metadata.text.output
    rank = next((rank for name, rank in outputs if name == wanted), outputs[0][1] if outputs else None)
    return metadata.task is Task.EMBED and metadata.text.pooling is None and rank == 3


def open_inputs(file: Path) -> list[str]:
    """Returns the names of an ONNX file's inputs `[batch, tokens]` whose number of tokens is open. Returns an empty
    list if another dimension is open, too: the sizes then do not follow from the number of tokens.
    """
    inputs = [(name, [dim.get("dim_value") for dim in dims or ()]) for name, dims in _ends(file, "input")]
    found = [name for name, sizes in inputs if any(size is None for size in sizes[1:])]
    return found if all(len(sizes) == 2 for name, sizes in inputs if name in found) else []


def _outputs(file: Path) -> list[tuple[str, int | None]]:
    """Returns the names of an ONNX file's outputs, and their numbers of dimensions where the file defines them."""
    return [(name, None if dims is None else len(dims)) for name, dims in _ends(file, "output")]


def _ends(file: Path, kind: str) -> list[tuple[str, Sequence[Values] | None]]:
    """Returns the names of an ONNX file's inputs or outputs, and their dimensions where the file defines them. Returns
    an empty list for another file, or a damaged one, which the compiler reports.
    """
    if file.suffix != ".onnx" or not file.stat().st_size:
        return []
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        try:
            return list(_ends_of(bytes(mapped), kind))
        except MalformedModel:
            return []


def _ends_of(data: bytes, kind: str) -> Iterator[tuple[str, Sequence[Values] | None]]:
    graph: Values = read_message(memoryview(data)).get("graph", {})
    for end in graph.get(kind, ()):
        shape = end.get("type", {}).get("tensor_type", {}).get("shape")
        yield bytes(end.get("name", b"")).decode("utf-8", "replace"), None if shape is None else shape.get("dim", ())
