"""Tokenizers of SentencePiece models, built as transformers 5 builds them.

The model's class in transformers determines the ids of the pieces, the normalization and the special tokens; the file
alone does not. transformers lets the package `tokenizers` split texts, too, so the ids are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.sentencepiece import (
    CONTROL,
    UNIGRAM,
    USER_DEFINED,
    SentencePieceModel,
    read_sentencepiece,
)
from service.compiler.importers.published.special_tokens import tokenizer_settings
from service.compiler.importers.published.texts import TOKENIZER_CONFIG
from service.core.errors import InvalidInput, Unsupported
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.core.printable import printable

_MOST_EXTRA = 1000
_PURPOSES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

Settings = Mapping[str, Any]
Names = Mapping[str, str]
Vocabulary = list[tuple[str, float]]
Normalizers = Callable[[Any, SentencePieceModel, Settings], list[Any]]


def _map_characters(package: Any, model: SentencePieceModel, settings: Settings) -> list[Any]:
    return [package.normalizers.Precompiled(model.characters_map)] if model.characters_map else []


def _unaccented(*, keeps_accents: bool, lowercases: bool) -> Normalizers:
    """Returns the normalization of ALBERT and XLNet, with the defaults of their settings."""

    def normalizers(package: Any, model: SentencePieceModel, settings: Settings) -> list[Any]:
        of = package.normalizers
        found = [of.Replace("``", '"'), of.Replace("''", '"')]
        if not settings.get("keep_accents", keeps_accents):
            found += [of.NFKD(), of.StripAccents()]
        if settings.get("do_lower_case", lowercases):
            found.append(of.Lowercase())
        return found + _map_characters(package, model, settings)

    return normalizers


def _deberta(package: Any, model: SentencePieceModel, settings: Settings) -> list[Any]:
    of = package.normalizers
    spaces = of.Replace(package.Regex(r"\s{2,}|[\n\r\t]"), " ")
    lower = [of.Lowercase()] if settings.get("do_lower_case", False) else []
    return [*lower, spaces, of.NFC(), of.Strip(left=False, right=True)]


@dataclass(frozen=True)
class Family:
    """The rules of a class of transformers.

    Attributes:
        names: the special tokens by their purpose, where the settings do not define them.
        single, pair: the templates of one text and of two, with the purposes of special tokens in braces.
        first: the vocabulary before the pieces, as purposes in braces or as texts; their scores are 0.
        skips: the number of the model's first pieces that are left out.
        last: the vocabulary after the pieces.
        unk_index: the id of unknown pieces; None for the model's own.
        normalizers: the normalizations of a text.
        splits: true if a text is split at white space before it is tokenized.
        mask_strips: true if white space before the mask token belongs to it.
    """

    names: Names
    single: str
    pair: str
    first: Sequence[str] = ()
    skips: int = 0
    last: Sequence[str] = ()
    unk_index: int | None = None
    normalizers: Normalizers = _map_characters
    splits: bool = True
    mask_strips: bool = False


_FAIRSEQ: Names = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_ALBERT: Names = {
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "unk_token": "<unk>",
    "sep_token": "[SEP]",
    "pad_token": "<pad>",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_CLS_SEP = ("{cls_token}:0 $A:0 {sep_token}:0", "{cls_token}:0 $A:0 {sep_token}:0 $B:1 {sep_token}:1")
_BOS_EOS = ("{bos_token}:0 $A:0 {eos_token}:0", "{bos_token}:0 $A:0 {eos_token}:0 {eos_token}:0 $B:0 {eos_token}:0")
FAMILIES: Mapping[str, Family] = {
    "XLMRobertaTokenizer": Family(
        _FAIRSEQ,
        *_BOS_EOS,
        first=("{bos_token}", "{pad_token}", "{eos_token}", "{unk_token}"),
        skips=3,
        last=("{mask_token}",),
        unk_index=3,
    ),
    "CamembertTokenizer": Family(
        _FAIRSEQ,
        *_BOS_EOS,
        first=("<s>NOTUSED", "{pad_token}", "</s>NOTUSED", "{unk_token}", "<unk>NOTUSED"),
        skips=1,
        last=("{mask_token}",),
        unk_index=3,
        mask_strips=True,
    ),
    "AlbertTokenizer": Family(
        _ALBERT, *_CLS_SEP, unk_index=1, normalizers=_unaccented(keeps_accents=False, lowercases=True)
    ),
    "T5Tokenizer": Family(
        {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        "$A:0 {eos_token}:0",
        "$A:0 {eos_token}:0 $B:0 {eos_token}:0",
        unk_index=2,
    ),
    "DebertaV2Tokenizer": Family(
        {**_ALBERT, "unk_token": "[UNK]", "pad_token": "[PAD]"},
        *_CLS_SEP,
        normalizers=_deberta,
        splits=False,
    ),
    "XLNetTokenizer": Family(
        {**_FAIRSEQ, "sep_token": "<sep>", "cls_token": "<cls>"},
        "$A:0 {sep_token}:0 {cls_token}:2",
        "$A:0 {sep_token}:0 $B:1 {sep_token}:1 {cls_token}:2",
        normalizers=_unaccented(keeps_accents=False, lowercases=False),
        mask_strips=True,
    ),
}


def build_unigram(package: Any, folder: Folder, file: str, class_name: str) -> Any:
    """Returns the tokenizer of a SentencePiece model.

    Args:
        package: the package `tokenizers`.
        class_name: the class of transformers that reads the file; empty if unknown.

    Raises:
        InvalidInput: the file is damaged.
        Unsupported: the model's class has other rules, or the model is not a unigram model.
    """
    settings = tokenizer_settings(folder)
    family = FAMILIES.get(class_name)
    if family is None:
        what = f"of {printable(class_name)}" if class_name else "of an unknown class"
        raise Unsupported(f"the folder contains {file} {what}, but Octet reads tokenizer.json")
    model = read_sentencepiece(folder.read(file, MAX_TOKENIZER_BYTES), file)
    if model.type != UNIGRAM:
        raise Unsupported(f"{printable(file)} of {class_name} is not a unigram model, so Octet does not convert it")
    if model.has_byte_fallback:
        raise Unsupported(f"{file} converts unknown characters to bytes, which Octet does not convert")
    names = {purpose: content_of(settings.get(purpose)) or name for purpose, name in family.names.items()}
    vocabulary = _vocabulary(family, model, names, settings)
    indices: dict[str, int] = {}
    for index, (text, _) in enumerate(vocabulary):
        indices.setdefault(text, index)
    unk_id = family.unk_index if family.unk_index is not None else indices.get(names["unk_token"], model.unk_id)
    tokenizer = package.Tokenizer(package.models.Unigram(vocabulary, unk_id, False))
    if steps := family.normalizers(package, model, settings):
        tokenizer.normalizer = steps[0] if len(steps) == 1 else package.normalizers.Sequence(steps)
    split = package.pre_tokenizers
    scheme = "always" if settings.get("add_prefix_space", True) else "first" if not family.splits else "never"
    spaces = split.Metaspace(replacement="\u2581", prepend_scheme=scheme)
    if family.splits:
        tokenizer.pre_tokenizer = split.Sequence([split.WhitespaceSplit(), spaces])
    elif settings.get("split_by_punct", False):
        tokenizer.pre_tokenizer = split.Sequence([split.Punctuation(behavior="isolated"), spaces])
    else:
        tokenizer.pre_tokenizer = spaces
    add_tokens(package, tokenizer, family, model, names, settings)
    used = {purpose: name for purpose, name in names.items() if f"{{{purpose}}}" in family.pair}
    tokenizer.post_processor = package.processors.TemplateProcessing(
        single=family.single.format(**names),
        pair=family.pair.format(**names),
        special_tokens=sorted({(name, tokenizer.token_to_id(name)) for name in used.values()}),
    )
    return tokenizer


def _vocabulary(family: Family, model: SentencePieceModel, names: Names, settings: Settings) -> Vocabulary:
    first = [(text.format(**names), 0.0) for text in family.first]
    last = [(text.format(**names), 0.0) for text in family.last]
    pieces = [(piece.text, piece.score) for piece in model.pieces[family.skips :]]
    if "<unk>NOTUSED" in family.first:
        first[-1] = (first[-1][0], -100.0)  # so that it is never used
    return [*first, *pieces, *last, *((text, 0.0) for text in _extra(family, settings))]


def _extra(family: Family, settings: Settings) -> list[str]:
    """Returns the sentinel tokens of T5, the last one first."""
    if "bos_token" in family.names:
        return []
    count = settings.get("extra_ids", 100)
    if not isinstance(count, int) or not 0 <= count <= _MOST_EXTRA:
        raise InvalidInput(f"extra_ids in {TOKENIZER_CONFIG} is not a number from 0 to {_MOST_EXTRA}")
    return [f"<extra_id_{index}>" for index in reversed(range(count))]


def add_tokens(
    package: Any, tokenizer: Any, family: Family, model: SentencePieceModel, names: Names, settings: Settings
) -> None:
    """Adds the tokens that are recognized in a text: those that the settings list, the special ones, and those that the
    SentencePiece model defines.
    """
    decoder = settings.get("added_tokens_decoder")
    listed = decoder.values() if isinstance(decoder, dict) else ()
    added = {token["content"]: token for token in listed if isinstance(token, dict) and content_of(token)}
    for purpose in _PURPOSES:
        if purpose in names:
            strips = family.mask_strips and purpose == "mask_token"
            given = settings.get(purpose)
            added.setdefault(names[purpose], given if isinstance(given, dict) else {"lstrip": strips})
    for text in _extra(family, settings):
        added.setdefault(text, {})
    for piece in model.pieces:
        if piece.type in (CONTROL, USER_DEFINED):
            added.setdefault(piece.text, {"special": piece.type == CONTROL})
    for text, options in added.items():
        flags = {name: options.get(name) is True for name in ("single_word", "lstrip", "rstrip", "normalized")}
        is_special = options.get("special", True) is not False
        token = package.AddedToken(text, special=is_special, **flags)
        (tokenizer.add_special_tokens if is_special else tokenizer.add_tokens)([token])


def content_of(token: Any) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) and found else None
