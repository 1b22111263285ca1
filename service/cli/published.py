"""Published models for `octet push`: reads the folder, and shows what was found and chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from service.cli.client import Client
from service.cli.output import Output
from service.cli.quantities import size
from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.reading import Published, lacks_pooling, open_inputs, read_published
from service.compiler.importers.published.tokenizers import check_tokenizer
from service.compiler.importers.published.variants import choose, variants_in
from service.core.artifacts.artifact import TOKENIZER_MEDIA_TYPE, only_artifact
from service.core.errors import InvalidInput, UnknownTarget
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.model import model_name_of
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.core.target import ALL, Target, detect_host, parse_target

_MOST_NAMES = 8  # the number of ignored files that are named
_MOST_TOKENS = 512  # the largest bucket of a text model that is pushed without a shape


@dataclass(frozen=True)
class Description:
    """The data that are stored with a pushed version.

    Attributes:
        metadata: the metadata without the tokenizer.
        tokenizer: the bytes of `tokenizer.json`; empty without one.
    """

    metadata: ModelMetadata = NOTHING
    tokenizer: bytes = b""
    rows: list[tuple[str, str]] = field(default_factory=list)


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


def version_description(client: Client, name: str, version: int) -> Description:
    """Returns the metadata and the tokenizer of a version on the server."""
    (found,) = (each for each in client.model(name)["versions"] if each["version"] == version)
    metadata = ModelMetadata.from_json(found["metadata"] or {})
    return Description(metadata, client.tokenizer(name, version) if metadata.text.tokenizer else b"")


def read_folder(
    folder: Path, variant: str | None, target: Target | None, metadata: ModelMetadata, tokenizer: Path | None
) -> tuple[Published, Description]:
    """Reads a folder. `metadata` and `tokenizer` replace what the folder defines.

    Raises:
        OctetError: as `read_published`.
    """
    published = read_published(folder, variant, target, tokenizer, metadata.text.pooling)
    described = metadata.over(published.metadata)
    return published, Description(described, published.tokenizer, _rows(published, described))


def show_description(output: Output, published: Published, described: Description) -> None:
    """Shows what was found and chosen, and a note if something is missing."""
    if not output.as_json:
        table = Table.grid(padding=(0, 2))
        for name, value in described.rows:
            table.add_row(Text(name, style="bold"), value)
        output.show(table)
    if lacks_pooling(published, described.metadata):
        output.note("the folder does not define how to combine the vectors of the tokens: --pooling mean or cls does")


def shapes_for_texts(published: Published, metadata: ModelMetadata) -> str:
    """Returns the input shapes of a text model whose number of tokens is open: buckets of 16, 32, 64 … tokens up to the
    maximum of the tokenizer. Returns an empty string for other models.
    """
    if not published.tokenizer or not (names := open_inputs(published.file)):
        return ""
    longest = min(metadata.text.max_length or _MOST_TOKENS, _MOST_TOKENS)
    sizes = [16 << power for power in range(longest.bit_length()) if 16 << power < longest] + [longest]
    return ";".join(f"{name}=1x[{','.join(map(str, sizes))}]" for name in names)


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
    table = Table("variant", "file", "precision", "size", "", box=None, padding=(0, 2, 0, 0))
    for each in variants:
        mark = "chosen" if each == chosen else ""
        table.add_row(each.name, each.file, each.precision, size(each.size_bytes), mark)
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


def name_of(folder: Path) -> str:
    """Derives a model's name from the folder: `bge-small-en-v1.5`. The folder of a model in the cache of
    huggingface_hub, `models--BAAI--bge-small-en-v1.5/snapshots/REVISION`, gives the same name.
    """
    resolved = folder.resolve()
    cached = re.fullmatch(r"models--(?:.*--)?(.+)", resolved.parent.parent.name)
    name = cached.group(1) if cached and resolved.parent.name == "snapshots" else resolved.name
    return model_name_of(Path(f"{name}.folder"))


def document_of(published: Published) -> dict[str, Any]:
    """Returns what was found and chosen, in JSON form."""
    return {
        "variant": vars(published.variant),
        "variants": [each.name for each in published.variants],
        "metadata": published.metadata.to_json(),
        "sources": list(published.sources),
        "ignored": list(published.ignored),
    }


def _rows(published: Published, metadata: ModelMetadata) -> list[tuple[str, str]]:
    chosen, text = published.variant, metadata.text
    others = [each.name for each in published.variants if each != chosen]
    tokenizer = [size(len(published.tokenizer)) if published.tokenizer else "none"]
    tokenizer += [f"at most {text.max_length} tokens"] if text.max_length else []
    picture = str(replace(metadata.of_pictures, layout=None))
    rows = [
        ("variant", f"{chosen.name}: {chosen.file}, {chosen.precision}, {size(chosen.size_bytes)}"),
        ("others", ", ".join(others)),
        ("task", str(metadata.task or "not defined: --task sets it")),
        ("labels", _shortened(metadata.labels)),
        ("scores", str(metadata.activation or "")),
        ("pictures", picture),
        ("tokenizer", ", ".join(tokenizer) if published.tokenizer or metadata.text else ""),
        ("layers", "added to the file after the model" if published.addition else ""),
        ("pooling", ", ".join(filter(None, ["+".join(text.pooling), "normalized" if text.normalize else ""]))),
        ("prompts", ", ".join(text.prompts)),
        ("read", ", ".join(published.sources)),
        ("ignored", _shortened(published.ignored)),
    ]
    return [(name, value) for name, value in rows if value]


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown
