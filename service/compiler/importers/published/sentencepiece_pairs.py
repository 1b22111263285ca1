"""Tokenizers of SentencePiece models whose pieces are merged pairs (BPE), as Llama and Gemma have them.

They are built as transformers' LlamaTokenizerFast and GemmaTokenizerFast of release 4 build them. Characters that are
not pieces become the pieces of their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.sentencepiece import PAIRS, read_sentencepiece
from service.compiler.importers.published.special_tokens import tokenizer_settings
from service.compiler.importers.published.unigrams import Family, Settings, add_tokens, content_of
from service.core.errors import InvalidInput, Unsupported
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.core.printable import printable

SPACE = "\u2581"
_MOST_CHARACTERS = 256  # of a piece: all its pairs are searched
_LLAMA, _GEMMA = "LlamaTokenizer", "GemmaTokenizer"
FAMILIES: Mapping[str, Family] = {
    _LLAMA: Family({"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, "", ""),
    _GEMMA: Family({"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}, "", ""),
}
_TAB, _TAB_BYTE = "\t", "<0x09>"


def build_pairs(package: Any, folder: Folder, file: str, class_name: str) -> Any:
    """Returns the tokenizer of a SentencePiece model.

    Args:
        package: the package `tokenizers`.
        class_name: a key of `FAMILIES`.

    Raises:
        InvalidInput: the file is damaged.
        Unsupported: the model is not of pairs.
    """
    settings, family = tokenizer_settings(folder), FAMILIES[class_name]
    model = read_sentencepiece(folder.read(file, MAX_TOKENIZER_BYTES), file)
    if model.type != PAIRS:
        raise Unsupported(f"{printable(file)} of {class_name} is not a model of pairs, so Octet does not convert it")
    names = {purpose: content_of(settings.get(purpose)) or name for purpose, name in family.names.items()}
    scores = {piece.text: piece.score for piece in model.pieces}
    indices = {piece.text: index for index, piece in enumerate(model.pieces)}
    if class_name == _GEMMA and _TAB not in indices and _TAB_BYTE in indices:
        indices[_TAB] = indices.pop(_TAB_BYTE)  # older files lack the piece of a tab
    merges = merges_of(indices, scores)
    unk_token = model.pieces[model.unk_id].text if model.unk_id < len(model.pieces) else names["unk_token"]
    tokenizer = package.Tokenizer(
        package.models.BPE(indices, merges, unk_token=unk_token, fuse_unk=True, byte_fallback=model.has_byte_fallback)
    )
    if class_name == _GEMMA:
        tokenizer.normalizer = package.normalizers.Replace(" ", SPACE)
        tokenizer.pre_tokenizer = package.pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        _replace_spaces(package, tokenizer, settings)
    add_tokens(package, tokenizer, family, model, names, settings)
    _add_ends(package, tokenizer, names, settings)
    return tokenizer


def merges_of(indices: Mapping[str, int], scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Returns the pairs of pieces that are pieces together, the best score first (transformers' `generate_merges`).

    Raises:
        InvalidInput: a piece is too long.
    """
    found: list[tuple[float, int, int, str, str]] = []
    for piece, score in scores.items():
        if len(piece) > _MOST_CHARACTERS:
            raise InvalidInput(f"a piece of the tokenizer has {len(piece)} characters; the limit is {_MOST_CHARACTERS}")
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        pairs = [(left, right) for left, right in splits if left in indices and right in indices]
        pairs.sort(key=lambda pair: (indices[pair[0]], indices[pair[1]]))
        found += [(score, len(left), len(right), left, right) for left, right in pairs]
    found.sort(key=lambda each: each[:3], reverse=True)
    return [(left, right) for *_, left, right in found]


def _replace_spaces(package: Any, tokenizer: Any, settings: Settings) -> None:
    prefix = settings.get("add_prefix_space", True) is not False
    if settings.get("legacy", True) is False:
        scheme = "first" if prefix else "never"
        tokenizer.pre_tokenizer = package.pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)
        return
    steps: Sequence[Any] = [package.normalizers.Replace(" ", SPACE)]
    if prefix:
        steps = [package.normalizers.Prepend(SPACE), *steps]
    tokenizer.normalizer = package.normalizers.Sequence(steps)


def _add_ends(package: Any, tokenizer: Any, names: Mapping[str, str], settings: Settings) -> None:
    """Puts the tokens of the beginning and the end around each text, if the settings request them."""
    first = names["bos_token"] if settings.get("add_bos_token", True) is not False else ""
    last = names["eos_token"] if settings.get("add_eos_token", False) is True else ""

    def template(text: str, index: int) -> str:
        before, after = f"{first}:{index} " if first else "", f" {last}:{index}" if last else ""
        return f"{before}${text}:{index}{after}"

    tokenizer.post_processor = package.processors.TemplateProcessing(
        single=template("A", 0),
        pair=f"{template('A', 0)} {template('B', 1)}",
        special_tokens=[(each, tokenizer.token_to_id(each)) for each in dict.fromkeys((first, last)) if each],
    )
