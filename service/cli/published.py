"""Published models for `octet push`: reads the folder, and shows what was found and chosen."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from service.cli.client import Client
from service.cli.output import Output
from service.cli.quantities import size
from service.cli.tables import Table, facts, number, text, whole
from service.compiler.importers.published.archives import pack_folder
from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.tokenizers import TOKENIZER, check_tokenizer
from service.compiler.importers.published.variants import Variant, choose, files_of, variants_in
from service.core.artifacts.artifact import TOKENIZER_MEDIA_TYPE, only_artifact
from service.core.errors import InvalidInput, UnknownTarget
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.task import Task
from service.core.models.text import MAX_TOKENIZER_BYTES, TextProcessing
from service.core.target import ALL, Target, detect_host, parse_target

_MOST_NAMES = 8  # the number of ignored files that are named
# Weights of other frameworks, which are not sent.
_WEIGHTS = frozenset({".bin", ".safetensors", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".ckpt", ".gguf", ".mlmodel"})


@dataclass(frozen=True)
class Description:
    """The data that are stored with a pushed version.

    Attributes:
        metadata: the metadata without the tokenizer.
        tokenizer: the bytes of `tokenizer.json`; empty without one.
    """

    metadata: ModelMetadata = NOTHING
    tokenizer: bytes = b""


UNDESCRIBED = Description()


def describe_file(metadata: ModelMetadata, tokenizer: Path | None) -> Description:
    """Returns the description of a single file. Raises `InvalidInput` if the tokenizer is not a `tokenizer.json`."""
    if tokenizer is None:
        return Description(metadata)
    data = tokenizer.read_bytes()[: MAX_TOKENIZER_BYTES + 1]
    check_tokenizer(data, tokenizer.name)
    return Description(metadata, data)


def describe_artifact(folder: Path, metadata: ModelMetadata, tokenizer: Path | None) -> Description:
    """Returns the description of a compiled folder: the metadata and the tokenizer that `octet pull` wrote, with those
    that the options define in their place.

    Raises:
        NotFound: the folder contains no artifact, or several.
        InvalidInput: the tokenizer is not a `tokenizer.json`.
    """
    from service.cache import OciLayout
    from service.cache.metadata import metadata_of

    layout = OciLayout.open(folder)
    artifact = only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
    stored = metadata_of(layout, artifact)
    described = metadata.over(replace(stored, text=stored.text.without_tokenizer()))
    if tokenizer is not None:
        return describe_file(described, tokenizer)
    return Description(described, layout.attached(artifact, TOKENIZER_MEDIA_TYPE) or b"")


def version_of(build: dict[str, Any], name: str) -> int:
    """Returns the version of the model `name` that uses the build; other models may share it."""
    return next(int(each["version"]) for each in build["models"] if each["name"] == name)


def version_metadata(client: Client, name: str, version: int) -> ModelMetadata:
    """Returns the metadata of a version on the server."""
    (found,) = (each for each in client.model(name)["versions"] if each["version"] == version)
    return ModelMetadata.from_json(found["metadata"] or {})


def version_description(client: Client, name: str, version: int) -> Description:
    """Returns the metadata and the tokenizer of a version on the server."""
    metadata = version_metadata(client, name, version)
    return Description(metadata, client.tokenizer(name, version) if metadata.text.tokenizer else b"")


@contextmanager
def packed_folder(folder: Folder, variant: Variant, tokenizer: Path | None) -> Iterator[Path]:
    """Yields a zip archive of the files of a folder that define the model: those of the variant, and the small files.
    The archive exists until the block ends.

    Args:
        tokenizer: the file that replaces the tokenizer of the folder.

    Raises:
        InvalidInput: `tokenizer` is not a `tokenizer.json`.
    """
    names = [name for name in folder.names if _belongs(folder, name, variant)]
    replaced = {} if tokenizer is None else {TOKENIZER: describe_file(NOTHING, tokenizer).tokenizer}
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "folder.zip"
        pack_folder(folder, names, archive, replaced)
        yield archive


def folder_query(variant: Variant, text: TextProcessing) -> dict[str, str]:
    """Returns the parameters of the upload of a folder."""
    members = {"variant": variant.file, "pooling": "+".join(text.pooling), "max_length": text.max_length}
    return {name: str(value) for name, value in members.items() if value}


def show_folder(output: Output, client: Client, name: str, folder: Folder, build: dict[str, Any]) -> None:
    """Shows what the server found in a folder and chose, and notes if something is missing. Completes the member
    `published` of the response to the upload with what the server did not see.
    """
    metadata = version_metadata(client, name, version_of(build, name))
    found = build["published"]
    if not output.as_json:
        output.show(facts(_rows(folder, found, metadata)))
    if found["lacks_pooling"] and metadata.task is Task.EMBED and not metadata.text.pooling:
        output.note("the folder does not define how to combine the vectors of the tokens: --pooling mean or cls does")
    if found["input_shape"]:
        output.note(f"one build for every number of tokens: --input-shape '{found['input_shape']}'")
    build["published"] = _document(folder, found, metadata)


def show_variants(output: Output, root: Path, variant: str | None, target: str) -> None:
    """Lists the variants of a folder, and marks the one that is chosen for the target. "host" and "all" mean the best
    target of this machine, because no server is asked.

    Raises:
        InvalidInput: the folder contains no model file, or no variant of that name.
    """
    at = detect_host().target if target in ("host", ALL) else parse_target(target)
    folder = Folder(root)
    variants = variants_in(folder)
    try:
        chosen = choose(folder, variant, at)
    except InvalidInput:
        if variant is not None or not variants:
            raise
        chosen = None  # the model is in parts
    if output.as_json:
        output.document({"variants": [{**vars(each), "chosen": each == chosen} for each in variants]})
        return
    table = Table(whole("variant"), text("file"), whole("precision"), number("size"), whole())
    for each in variants:
        mark = "chosen" if each == chosen else ""
        table.add(each.name, each.file, each.precision, size(each.size_bytes), mark)
    output.show(table)


def target_of(client: Client, name: str) -> Target | None:
    """Returns the target called `name`. For "host" and "all", returns the target that "host" means on the server; None
    if the server does not report one.
    """
    if name not in ("host", ALL):
        return parse_target(name)
    names = [each["name"] for each in client.targets()["targets"] if each["host"]]
    try:
        return parse_target(names[0]) if names else None
    except UnknownTarget:  # a newer server has more targets
        return None


def _document(folder: Folder, found: dict[str, Any], metadata: ModelMetadata) -> dict[str, Any]:
    variant = {"name": found["variant"], **{name: found[name] for name in ("file", "precision", "size_bytes")}}
    return {
        "variant": variant,
        "variants": [each.name for each in variants_in(folder)],
        "metadata": metadata.to_json(),
        "sources": found["sources"],
        "ignored": _ignored(folder, found),
        "input_shape": found["input_shape"],
    }


def _belongs(folder: Folder, name: str, variant: Variant) -> bool:
    """Returns false for the files of other variants, and for weights of other frameworks."""
    if name in files_of(folder, variant.file):
        return True
    if any(name in files_of(folder, each.file) for each in variants_in(folder)):
        return False
    path = PurePosixPath(name)
    is_step = re.fullmatch(r"\d+_[A-Za-z]+", str(path.parent)) is not None
    return is_step or (path.suffix not in _WEIGHTS and folder.size_bytes(name) <= MAX_TOKENIZER_BYTES)


def _ignored(folder: Folder, found: dict[str, Any]) -> list[str]:
    used = {*found["sources"], *(name for each in variants_in(folder) for name in files_of(folder, each.file))}
    return [name for name in folder.names if name not in used]


def _rows(folder: Folder, found: dict[str, Any], metadata: ModelMetadata) -> list[tuple[str, str]]:
    text = metadata.text
    others = [each.name for each in variants_in(folder) if each.file != found["file"]]
    tokenizer = [size(text.tokenizer_bytes) if text.tokenizer else "none"]
    tokenizer += [f"at most {text.max_length} tokens"] if text.max_length else []
    picture = str(replace(metadata.of_pictures, layout=None))
    rows = [
        ("variant", f"{found['variant']}: {found['file']}, {found['precision']}, {size(found['size_bytes'])}"),
        ("others", ", ".join(others)),
        ("task", str(metadata.task or "not defined: --task sets it")),
        ("labels", _shortened(metadata.labels)),
        ("scores", str(metadata.activation or "")),
        ("pictures", picture),
        ("tokenizer", ", ".join(tokenizer) if text else ""),
        ("layers", "added to the file after the model" if found["has_layers"] else ""),
        ("pooling", ", ".join(filter(None, ["+".join(text.pooling), "normalized" if text.normalize else ""]))),
        ("prompts", ", ".join(text.prompts)),
        ("read", ", ".join(found["sources"])),
        ("ignored", _shortened(_ignored(folder, found))),
    ]
    return [(name, value) for name, value in rows if value]


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown
