"""The tokenizer of a model: `tokenizer.json`, or one that is built from the files of an older format.

BERT's `vocab.txt`, RoBERTa's pair of `vocab.json` and `merges.txt`, and SentencePiece models (`unigrams`) define a
tokenizer, together with the class in `tokenizer_config.json`. Other classes are refused.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from service.compiler.importers.published.files import Folder, parse_json
from service.compiler.importers.published.texts import SPECIAL_TOKENS, TOKENIZER_CONFIG
from service.compiler.importers.published.tokenizer_settings import applied
from service.compiler.importers.published.unigrams import FILES, build_unigram
from service.core.errors import InvalidInput, OctetError, Unsupported
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.core.printable import printable

TOKENIZER = "tokenizer.json"
_HOW = (
    "python -c \"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained('DIR').save_pretrained('DIR')\" "
    "writes it"
)


def read_tokenizer(folder: Folder) -> tuple[bytes, str]:
    """Returns the bytes of `tokenizer.json`, and the file that they come from; both are empty if the folder contains no
    tokenizer.

    Raises:
        InvalidInput: a file is too large, or not well formed.
        Unsupported: the folder contains a tokenizer in another format that cannot be converted exactly here.
    """
    if TOKENIZER in folder:
        data = folder.read(TOKENIZER, MAX_TOKENIZER_BYTES)
        return applied(data, check_tokenizer(data, TOKENIZER), folder), TOKENIZER
    for file in FILES:
        if file in folder:
            return _built(folder, file, partial(build_unigram, file=file)), file
    for files, classes, build in _OLD_FORMATS:
        if all(name in folder for name in files):
            found = folder.json(TOKENIZER_CONFIG).get("tokenizer_class", classes[0])
            if str(found).removesuffix("Fast") not in classes:
                raise Unsupported(
                    f"the folder contains {files[0]} of {printable(str(found))}, but Octet reads tokenizer.json",
                    hint=_HOW,
                )
            return _built(folder, files[0], build), files[0]
    return b"", ""


def _built(folder: Folder, file: str, build: Callable[[Any, Folder], Any]) -> bytes:
    """Returns the `tokenizer.json` of a tokenizer in an older format."""
    if importlib.util.find_spec("tokenizers") is None:
        raise Unsupported(
            f"{file} is converted by the package tokenizers, which is not installed", hint="pip install tokenizers"
        )
    try:
        text: str = build(import_module("tokenizers"), folder).to_str()
    except Unsupported as error:
        error.hint = error.hint or _HOW
        raise
    except OctetError:
        raise
    except BaseException as error:  # a panic of Rust code is not an `Exception`
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise InvalidInput(f"{file} does not define a tokenizer: {error}", hint=_HOW) from error
    return text.encode()


def check_tokenizer(data: bytes, name: str) -> Mapping[str, Any]:
    """Returns the members of a `tokenizer.json`. Raises `InvalidInput` if the file is not one."""
    members = parse_json(data, name)
    if not isinstance(members, dict) or not isinstance(members.get("model"), dict):
        raise InvalidInput(f"{name} is not a file of the package tokenizers: it has no member model", hint=_HOW)
    return members


def _build_bert(package: Any, folder: Folder) -> Any:
    """Returns the tokenizer that transformers' BertTokenizerFast, or MPNetTokenizerFast, builds from `vocab.txt`."""
    settings = _settings(folder)
    is_mpnet = str(settings.get("tokenizer_class")).startswith("MPNet")
    lines = folder.read("vocab.txt", MAX_TOKENIZER_BYTES).decode("utf-8", "replace").removesuffix("\n").split("\n")
    vocabulary = {line.rstrip("\r"): index for index, line in enumerate(lines)}
    names = _special_tokens(settings, _MPNET_TOKENS if is_mpnet else _BERT_TOKENS, vocabulary)
    tokenizer = package.Tokenizer(package.models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    tokenizer.normalizer = package.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = package.pre_tokenizers.BertPreTokenizer()
    first, last = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = package.processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])],
    )
    tokenizer.decoder = package.decoders.WordPiece(prefix="##")
    if is_mpnet:
        pairs = (last, vocabulary[last]), (first, vocabulary[first])
        tokenizer.post_processor = package.processors.RobertaProcessing(
            *pairs, trim_offsets=True, add_prefix_space=False
        )
    _add_special_tokens(package, tokenizer, names, strips=is_mpnet)
    return tokenizer


def _add_special_tokens(package: Any, tokenizer: Any, names: Mapping[str, str], *, strips: bool) -> None:
    """Adds the special tokens. If `strips`, white space before the mask token belongs to it."""
    others = [name for purpose, name in names.items() if purpose != "mask_token"]
    mask = package.AddedToken(names["mask_token"], lstrip=strips, normalized=False, special=True)
    tokenizer.add_special_tokens([*others, mask])


def _build_roberta(package: Any, folder: Folder) -> Any:
    """Returns the tokenizer that transformers' RobertaTokenizerFast builds from `vocab.json` and `merges.txt`."""
    settings = _settings(folder)
    vocabulary = {
        token: index for token, index in folder.json("vocab.json").items() if isinstance(index, int) and index >= 0
    }
    lines = folder.read("merges.txt", MAX_TOKENIZER_BYTES).decode("utf-8", "replace").split("\n")
    merges = [
        (pair[0], pair[1]) for line in lines if not line.startswith("#version") and len(pair := line.split(" ")) == 2
    ]
    names = _special_tokens(settings, _ROBERTA_TOKENS, vocabulary)
    spaced = settings.get("add_prefix_space") is True
    bpe = package.models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    tokenizer = package.Tokenizer(bpe)
    tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    tokenizer.decoder = package.decoders.ByteLevel()
    first, last = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = package.processors.RobertaProcessing(
        (last, vocabulary[last]), (first, vocabulary[first]), trim_offsets=True, add_prefix_space=spaced
    )
    _add_special_tokens(package, tokenizer, names, strips=True)
    return tokenizer


def _settings(folder: Folder) -> dict[str, Any]:
    return {**folder.json(SPECIAL_TOKENS), **folder.json(TOKENIZER_CONFIG)}


def _special_tokens(
    settings: Mapping[str, Any], defaults: Mapping[str, str], vocabulary: Mapping[str, int]
) -> dict[str, str]:
    """Returns the special tokens by their purpose. Raises `InvalidInput` if the vocabulary lacks one."""
    names = {}
    for purpose, default in defaults.items():
        given = settings.get(purpose, default)
        found = given.get("content") if isinstance(given, dict) else given
        names[purpose] = found if isinstance(found, str) else default
        if names[purpose] not in vocabulary:
            raise InvalidInput(f"the vocabulary does not contain the special token {names[purpose]}", hint=_HOW)
    return names


_BERT_TOKENS: Mapping[str, str] = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_MPNET_TOKENS: Mapping[str, str] = {
    "unk_token": "[UNK]",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
_ROBERTA_TOKENS: Mapping[str, str] = {
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
# The files of an older format, with the classes of transformers that read them; the first class is the default.
_OLD_FORMATS: Sequence[tuple[tuple[str, ...], tuple[str, ...], Callable[[Any, Folder], Any]]] = (
    (
        ("vocab.txt",),
        (
            "BertTokenizer",
            "ConvBertTokenizer",
            "DistilBertTokenizer",
            "ElectraTokenizer",
            "LayoutLMTokenizer",
            "MobileBertTokenizer",
            "MPNetTokenizer",
            "SqueezeBertTokenizer",
        ),
        _build_bert,
    ),
    (("vocab.json", "merges.txt"), ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"), _build_roberta),
)
