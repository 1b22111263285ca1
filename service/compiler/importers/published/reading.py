"""Reads a folder with a published model: chooses a variant, and combines what its files define."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from service.compiler.importers.onnx.file.message import Values, read_message
from service.compiler.importers.published.configuration import CONFIG, MODULES, SENTENCES_CONFIG, read_configuration
from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.layers import POOLED, layers_after
from service.compiler.importers.published.modules import Steps, read_steps
from service.compiler.importers.published.pictures import PREPROCESSOR, read_input_size, read_pictures
from service.compiler.importers.published.sounds import read_sounds
from service.compiler.importers.published.texts import (
    LENGTHS,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    read_text_processing,
)
from service.compiler.importers.published.tflite_texts import is_text_model, read_tflite_texts
from service.compiler.importers.published.tokenizers import TOKENIZER, check_tokenizer, read_tokenizer
from service.compiler.importers.published.variants import Variant, choose, files_of, variants_in
from service.core.errors import MalformedModel, OctetError, Unsupported
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.model import model_name_of
from service.core.models.task import Task
from service.core.models.text import Pooling, Side, TextProcessing, TokenInput
from service.core.target import Target

MARKS = (CONFIG, MODULES, PREPROCESSOR, TOKENIZER, TOKENIZER_CONFIG)  # files that only published models have
_MOST_TOKENS = 512  # the largest bucket of a text model that is pushed without a shape
_USED = (CONFIG, MODULES, PREPROCESSOR, SENTENCES_CONFIG, SPECIAL_TOKENS, TOKENIZER_CONFIG, *LENGTHS)


@dataclass(frozen=True)
class Published:
    """A model as its publisher describes it.

    Attributes:
        variant: the variant to serve.
        variants: all variants in the folder.
        file: the file of the variant.
        addition: bytes to append to the file, which contain the layers after the model; usually empty.
        metadata: the task, the labels and the processing that the folder defines, without a tokenizer.
        tokenizer: the bytes of `tokenizer.json`; empty without one.
        picture_size: the height and width of the pictures that the preprocessing gives, if the folder defines them.
        sources: the files that the tokenizer and the metadata come from.
        ignored: the remaining files.
        notice: a sentence on a part that cannot be used; usually empty.
    """

    variant: Variant
    variants: Sequence[Variant]
    file: Path
    addition: bytes
    metadata: ModelMetadata
    tokenizer: bytes
    picture_size: tuple[int, int] | None
    sources: Sequence[str]
    ignored: Sequence[str]
    notice: str = ""


def looks_published(folder: Path) -> bool:
    """Returns true if a folder contains files that only published models have, and none of an artifact."""
    return is_published(folder) and any((folder / name).is_file() for name in MARKS)


def is_published(folder: Path) -> bool:
    """Returns true if a folder is not an artifact, so that `read_published` can read it."""
    return folder.is_dir() and not (folder / "oci-layout").exists()


def name_of(folder: Path) -> str:
    """Derives a model's name from the folder: `bge-small-en-v1.5`. The folder of a model in the cache of
    huggingface_hub, `models--BAAI--bge-small-en-v1.5/snapshots/REVISION`, gives the same name.
    """
    resolved = folder.resolve()
    cached = re.fullmatch(r"models--(?:.*--)?(.+)", resolved.parent.parent.name)
    name = cached.group(1) if cached and resolved.parent.name == "snapshots" else resolved.name
    return model_name_of(Path(f"{name}.folder"))


def read_published(
    folder: Folder,
    variant: str | None = None,
    target: Target | None = None,
    pooling: tuple[Pooling, ...] = (),
) -> Published:
    """Reads a folder.

    Args:
        folder: the folder.
        variant: the variant to serve; None for the best (`variants.choose`).
        target: the target that the model will be compiled for, if it is determined.
        pooling: the pooling that replaces that of the folder.

    Raises:
        InvalidInput: the folder contains no model, no such variant, a damaged file, or a symbolic link that leaves it.
        Unsupported: the folder defines a step that Octet does not compute.
    """
    chosen = choose(folder, variant, target)
    file = folder.path(chosen.file)
    data, origin = read_tokenizer(folder)
    if not data and is_text_model(file):
        return _of_tflite(folder, chosen, file)
    members = check_tokenizer(data, origin) if data else {}
    outputs = _outputs(file)
    is_pooled = any(name == POOLED for name, _ in outputs) or (bool(outputs) and outputs[0][1] == 2)
    metadata, addition = read_configuration(folder).over(read_pictures(folder)).over(read_sounds(folder)), b""
    if data:
        steps = read_steps(folder, is_pooled=is_pooled, pooling=pooling)
        text = read_text_processing(folder, members, steps)
        if steps.layers:
            addition = _layers_of(file, steps, text)
        if addition or any(name == POOLED for name, _ in outputs[1:]):
            text = replace(text, output=POOLED)
        metadata = replace(metadata, text=text)
    elif metadata.task is not None and metadata.task.is_about_text:
        metadata = replace(metadata, task=None)
    read = [name for name in folder.names if name in _USED or _is_step(name)]
    sources = sorted({*read, *([origin] if data else [])})
    variants = variants_in(folder)
    of_models = [name for each in variants for name in files_of(folder, each.file)]
    ignored = sorted(set(folder.names) - set(sources) - set(of_models))
    return Published(chosen, variants, file, addition, metadata, data, read_input_size(folder), sources, ignored)


def _layers_of(file: Path, steps: Steps, text: TextProcessing) -> bytes:
    """Returns the bytes that add the layers after a model to its file."""
    inputs, outputs = _ends(file, "input"), _ends(file, "output")
    if file.suffix != ".onnx" or not outputs:
        raise Unsupported(
            f"{file.name} is followed by layers with weights, which Octet adds to ONNX files only",
            hint="--variant names an ONNX file",
        )
    mask = next((name for name, _ in inputs if text.data_of(name) is TokenInput.MASK), None)
    if mask is None:
        raise Unsupported(
            f"{file.name} has no input attention_mask, so the layers after it cannot be added",
            hint="export the model with this input",
        )
    return layers_after(steps, outputs[0][0], mask, _opset(file), text.padding_side or Side.RIGHT)


def _is_step(name: str) -> bool:
    """Returns true for a file of a step after the model, such as `1_Pooling/config.json`."""
    path = PurePosixPath(name)
    return path.name in (CONFIG, "model.safetensors") and re.fullmatch(r"\d+_[A-Za-z]+", str(path.parent)) is not None


def _of_tflite(folder: Folder, chosen: Variant, file: Path) -> Published:
    """Returns a TFLite model whose own metadata define its processing of text."""
    data, metadata, notice = b"", NOTHING, ""
    try:
        data, metadata = read_tflite_texts(file)
    except OctetError as error:  # the model itself can be used; if it is damaged, its build reports that
        notice = f"the tokenizer in the file's metadata cannot be used: {error.message}"
    variants = variants_in(folder)
    used = {CONFIG, *(name for each in variants for name in files_of(folder, each.file))}
    ignored = [name for name in folder.names if name not in used]
    sources = [chosen.file, *(name for name in folder.names if name == CONFIG)]
    described = read_configuration(folder).over(metadata)
    return Published(chosen, variants, file, b"", described, data, None, sources, ignored, notice)


def lacks_pooling(published: Published, metadata: ModelMetadata) -> bool:
    """Returns true if the model computes a vector for each token, and nothing defines how to combine them."""
    outputs = _outputs(published.file)
    wanted = metadata.text.output
    if published.addition:
        return False
    rank = next((rank for name, rank in outputs if name == wanted), outputs[0][1] if outputs else None)
    return metadata.task is Task.EMBED and not metadata.text.pooling and rank == 3


def shapes_for_texts(published: Published, max_length: int | None) -> str:
    """Returns the input shapes of a text model whose number of tokens is open: any number up to `max_length`, the
    maximum of the tokenizer. Returns an empty string for other models.
    """
    if not published.tokenizer or not (names := _open_inputs(published.file)):
        return ""
    longest = min(max_length or _MOST_TOKENS, _MOST_TOKENS)
    return ";".join(f"{name}=1x..{longest}" for name in names)


def shapes_for_pictures(published: Published) -> str:
    """Returns the input shape of a model of pictures whose height and width are open: the size that the preprocessing
    gives. Returns an empty string for other models.
    """
    inputs = [(name, _sizes(dims)) for name, dims in _ends(published.file, "input")]
    if published.picture_size is None or len(inputs) != 1 or len(inputs[0][1]) != 4:
        return ""
    ((name, sizes),) = inputs
    height, width = published.picture_size
    shape = [1, height, width, sizes[3]] if sizes[3] in (1, 3) else [1, sizes[1] or 3, height, width]
    is_open = any(size is None for size in sizes[1:])
    return f"{name}={','.join(map(str, shape))}" if is_open else ""


def _sizes(dims: Sequence[Values] | None) -> list[int | None]:
    """Returns the sizes of dimensions; None for an open one."""
    return [dim.get("dim_value") for dim in dims or ()]


def _open_inputs(file: Path) -> list[str]:
    """Returns the names of an ONNX file's inputs `[batch, tokens]` whose number of tokens is open. Returns an empty
    list if another dimension is open, too: the sizes then do not follow from the number of tokens.
    """
    inputs = [(name, _sizes(dims)) for name, dims in _ends(file, "input")]
    found = [name for name, sizes in inputs if any(size is None for size in sizes[1:])]
    return found if all(len(sizes) == 2 for name, sizes in inputs if name in found) else []


def _outputs(file: Path) -> list[tuple[str, int | None]]:
    """Returns the names of an ONNX file's outputs, and their numbers of dimensions where the file defines them."""
    return [(name, None if dims is None else len(dims)) for name, dims in _ends(file, "output")]


def _ends(file: Path, kind: str) -> list[tuple[str, Sequence[Values] | None]]:
    """Returns the names of an ONNX file's inputs or outputs, and their dimensions where the file defines them. Returns
    an empty list for another file, or a damaged one, which the compiler reports.
    """
    try:
        return list(_ends_of(_message(file), kind))
    except MalformedModel:
        return []


def _opset(file: Path) -> int:
    """Returns the version of ONNX's own operators that a file uses."""
    sets = _message(file).get("opset_import", ())
    return max((each.get("version", 1) for each in sets if not bytes(each.get("domain", b""))), default=1)


def _message(file: Path) -> Values:
    """Returns an ONNX file's message; empty for another file. Raises `MalformedModel` if it is damaged."""
    if file.suffix != ".onnx" or not file.stat().st_size:
        return {}
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return read_message(memoryview(bytes(mapped)))


def _ends_of(model: Values, kind: str) -> Iterator[tuple[str, Sequence[Values] | None]]:
    for end in model.get("graph", {}).get(kind, ()):
        shape = end.get("type", {}).get("tensor_type", {}).get("shape")
        yield bytes(end.get("name", b"")).decode("utf-8", "replace"), None if shape is None else shape.get("dim", ())
