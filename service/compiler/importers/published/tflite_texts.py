"""Tokenizers in the metadata of TFLite files, as TFLite's task library and MediaPipe use them.

The metadata names a vocabulary in the archive after the model: WordPiece for BERT, or words that a regular expression
separates. The tokenizer of BERT lowercases ASCII letters only, and keeps accents. Both are converted to a
`tokenizer.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from service.compiler.importers.archive import Archive
from service.compiler.importers.zip_names import names_of
from service.core.errors import InvalidInput, Unsupported
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.task import Activation, Task
from service.core.models.text import TextProcessing, TokenInput

if TYPE_CHECKING:  # the package of the TFLite importer loads TVM
    from service.compiler.importers.tflite.file.metadata_tables import TokenizerOptions

_IDENTIFIER = slice(4, 8)
_ARCHIVE_BYTES = 64 << 20
_INPUTS: Mapping[str, TokenInput] = {
    "ids": TokenInput.IDS,
    "mask": TokenInput.MASK,
    "segment_ids": TokenInput.TYPES,
}
_SPACES = r"[\t\n\f\r ]+"
_PUNCTUATION = (
    r"[!-/]|[:-@]|[\[-`]|[{-~]|[\p{P}]|[\x{4E00}-\x{9FFF}]|[\x{3400}-\x{4DBF}]|[\x{20000}-\x{2A6DF}]"
    r"|[\x{2A700}-\x{2B73F}]|[\x{2B740}-\x{2B81F}]|[\x{2B820}-\x{2CEAF}]|[\x{F900}-\x{FAFF}]|[\x{2F800}-\x{2FA1F}]"
)
# The classes of characters of RE2, which the task library uses, are those of ASCII.
_CLASSES: Mapping[str, str] = {r"\w": "0-9A-Za-z_", r"\d": "0-9", r"\s": r"\t\n\f\r ", r"\'": "'"}


def is_text_model(file: Path) -> bool:
    """Returns true if a file is a TFLite model with text files that are not labels in the archive after it, such as a
    vocabulary. Reads only the ends of the file.
    """
    with file.open("rb") as opened:
        if opened.read(_IDENTIFIER.stop)[_IDENTIFIER] != b"TFL3":
            return False
        names = names_of(opened) or ()
    return any(name.endswith(".txt") and "label" not in name.lower() for name in names)


def read_tflite_texts(file: Path) -> tuple[bytes, ModelMetadata]:
    """Returns the `tokenizer.json` and the processing of text that a TFLite file's metadata defines; both are empty if
    it defines none.

    Raises:
        MalformedModel: the file is damaged.
        InvalidInput: the vocabulary is damaged.
        Unsupported: the tokenizer cannot be converted.
    """
    from service.compiler.importers.tflite.file.metadata import tables_of
    from service.compiler.importers.tflite.file.reader import read_model
    from service.compiler.importers.tflite.signature import signature_of

    data = file.read_bytes()
    signature, tables = signature_of(read_model(data)), tables_of(data)
    options = tables.tokenizer
    if options is None or len(tables.inputs) != len(signature.inputs):
        return b"", NOTHING
    archive = Archive(data[-_ARCHIVE_BYTES:], largest_deflated_bytes=_ARCHIVE_BYTES, most_deflated_bytes=_ARCHIVE_BYTES)
    name = PurePosixPath(options.vocabulary).name  # writers of metadata leave the path of their own file in the name
    lines = [line.removesuffix("\r") for line in archive.text(name).split("\n")]
    package = import_module("tokenizers")
    if options.is_bert:
        inputs = {
            spec.name: _INPUTS[each.name]
            for spec, each in zip(signature.inputs, tables.inputs, strict=True)
            if each.name in _INPUTS
        }
        tokenizer, pad_id = _bert(package, lines)
    else:
        inputs = {signature.inputs[0].name: TokenInput.IDS}
        tokenizer, pad_id = _words(package, lines, options)
    if len(inputs) != len(signature.inputs):
        return b"", NOTHING
    longest = min((spec.shape[-1] for spec in signature.inputs if spec.shape), default=0)
    text = TextProcessing(max_length=longest if longest > 0 else None, pad_id=pad_id, inputs=inputs)
    (output, *others) = signature.outputs
    has_labels = any(each.files for each in tables.outputs)
    is_vector = not others and output.datatype == "FP32" and len(output.shape) == 2
    if has_labels:  # the file's last layer computes the scores
        return _encoded(tokenizer), ModelMetadata(task=Task.CLASSIFY, activation=Activation.NONE, text=text)
    return _encoded(tokenizer), ModelMetadata(task=Task.EMBED if is_vector else None, text=text)


def _encoded(tokenizer: Any) -> bytes:
    text: str = tokenizer.to_str()
    return text.encode()


def _bert(package: Any, lines: list[str]) -> tuple[Any, int]:
    """Returns the tokenizer of BERT, and the id of padding."""
    vocabulary = {line: index for index, line in enumerate(lines) if line}
    for token in ("[CLS]", "[SEP]", "[UNK]"):
        if token not in vocabulary:
            raise InvalidInput(f"the vocabulary in the file's metadata does not contain {token}")
    tokenizer = package.Tokenizer(package.models.WordPiece(vocabulary, unk_token="[UNK]"))
    letters = map(chr, range(ord("A"), ord("Z") + 1))
    tokenizer.normalizer = package.normalizers.Sequence(
        [package.normalizers.Replace(letter, letter.lower()) for letter in letters]
    )
    split = package.pre_tokenizers.Split
    tokenizer.pre_tokenizer = package.pre_tokenizers.Sequence(
        [split(package.Regex(_SPACES), "removed"), split(package.Regex(_PUNCTUATION), "isolated")]
    )
    tokenizer.post_processor = package.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer, 0  # the task library pads with zeros


def _words(package: Any, lines: list[str], options: TokenizerOptions) -> tuple[Any, int]:
    """Returns a tokenizer of words that a regular expression separates, and the id of padding. A line of the vocabulary
    is a word and its id.
    """
    vocabulary: dict[str, int] = {}
    for line in filter(None, lines):
        word, _, number = line.partition(" ")
        if not number.strip().isascii() or not number.strip().isdecimal() or len(number) > 10:
            raise InvalidInput("a line of the vocabulary in the file's metadata is not a word and its id")
        vocabulary[word] = int(number)
    for token in ("<PAD>", "<UNKNOWN>"):
        if token not in vocabulary:
            raise InvalidInput(f"the vocabulary in the file's metadata does not contain {token}")
    tokenizer = package.Tokenizer(package.models.WordLevel(vocabulary, unk_token="<UNKNOWN>"))
    tokenizer.pre_tokenizer = package.pre_tokenizers.Split(package.Regex(_translated(options.pattern)), "removed")
    if "<START>" in vocabulary:
        tokenizer.post_processor = package.processors.TemplateProcessing(
            single="<START>:0 $A:0", pair=None, special_tokens=[("<START>", vocabulary["<START>"])]
        )
    return tokenizer, vocabulary["<PAD>"]


def _translated(pattern: str) -> str:
    """Returns a pattern of RE2 for the package `tokenizers`. Only one class of characters is translated, such as
    `[^\\w\\']+`, which is the default.
    """
    inside = re.fullmatch(r"\[(\^?)((?:\\[wds']|[^\\\[\]&])+)\]\+", pattern)
    if inside is None:
        raise Unsupported(
            "the regular expression of the tokenizer in the file's metadata is not one class of characters",
            hint="push it with --tokenizer FILE, a tokenizer.json",
        )
    classes = re.sub(r"\\[wds']", lambda found: _CLASSES[found.group()], inside.group(2))
    return f"[{inside.group(1)}{classes}]+"
