"""The request and the result of the role that reads the folder of a published model (`children.folder_roles`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.compiler.messages.message import Count, Message
from service.compiler.messages.role import Role

MODEL_FILE = "model"  # the file to compile, in the child's folder
TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True)
class FolderRequest(Message):
    """A request to read a folder.

    Attributes:
        source: the folder, or a zip archive of it.
        variant: the variant to serve; "" for the best.
        target: the target that the model will be compiled for; "" if it is not determined.
        pooling: the pooling that replaces that of the folder, in the form of `parse_pooling`; "" for the folder's.
        max_length: the maximum number of tokens that replaces that of the folder.
        most_bytes: the limit for all files of an archive together, after unpacking.
    """

    source: Path
    variant: str
    target: str
    pooling: str
    max_length: int | None
    most_bytes: Count


@dataclass(frozen=True)
class Found(Message):
    """The contents of a folder, and the chosen variant.

    Attributes:
        variant, file, precision, size_bytes: the chosen variant (`variants.Variant`).
        variants: the names of all variants.
        has_layers: true if layers after the model were added to its file.
        lacks_pooling: true if the model computes a vector for each token, and nothing defines how to combine them.
        input_shape: the shapes for which a model with an open number of tokens, or an open height and width, is built;
            "" for another model.
        sources: the files that were read besides the model.
        ignored: the remaining files.
        notice: a sentence on a part that cannot be used; usually empty.
    """

    variant: str
    file: str
    precision: str
    size_bytes: Count
    variants: tuple[str, ...]
    has_layers: bool
    lacks_pooling: bool
    input_shape: str
    sources: tuple[str, ...]
    ignored: tuple[str, ...]
    notice: str


@dataclass(frozen=True)
class FolderResult(Message):
    """The files of a folder that are stored: `MODEL_FILE`, and `TOKENIZER_FILE` if it has a tokenizer.

    Attributes:
        metadata: the metadata in JSON form (`ModelMetadata.to_json`).
    """

    found: Found
    metadata: Mapping[str, Any]
    has_tokenizer: bool


FOLDER = Role("folder", FolderRequest, FolderResult)
