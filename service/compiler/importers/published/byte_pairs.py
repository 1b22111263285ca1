"""Tokenizers of `vocab.json` and `merges.txt`: pairs of bytes that are merged, as RoBERTa, GPT-2 and CLIP have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.special_tokens import add_special_tokens, special_tokens, tokenizer_settings
from service.core.models.text import MAX_TOKENIZER_BYTES

# The words of CLIP: transformers' CLIPConverter.
_CLIP_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_ROBERTA_TOKENS: Mapping[str, str] = {
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
_GPT2_TOKENS: Mapping[str, str] = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>")
_CLIP_TOKENS: Mapping[str, str] = {**_GPT2_TOKENS, "bos_token": "<|startoftext|>", "pad_token": "<|endoftext|>"}


def build_roberta(package: Any, folder: Folder) -> Any:
    """Returns the tokenizer that transformers' RobertaTokenizerFast builds.

    Args:
        package: the package `tokenizers`.

    Raises:
        InvalidInput: a file is damaged, or the vocabulary lacks a special token.
    """
    settings, vocabulary = tokenizer_settings(folder), _vocabulary(folder)
    names = special_tokens(settings, _ROBERTA_TOKENS, vocabulary)
    spaced = settings.get("add_prefix_space") is True
    tokenizer = _byte_level(package, folder, vocabulary, spaced)
    first, last = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = package.processors.RobertaProcessing(
        (last, vocabulary[last]), (first, vocabulary[first]), trim_offsets=True, add_prefix_space=spaced
    )
    add_special_tokens(package, tokenizer, names, strips=True)
    return tokenizer


def build_gpt2(package: Any, folder: Folder) -> Any:
    """Returns the tokenizer that transformers' GPT2TokenizerFast builds, like `build_roberta`."""
    settings, vocabulary = tokenizer_settings(folder), _vocabulary(folder)
    names = special_tokens(settings, _GPT2_TOKENS, vocabulary)
    tokenizer = _byte_level(package, folder, vocabulary, settings.get("add_prefix_space") is True)
    tokenizer.post_processor = package.processors.ByteLevel(trim_offsets=False)
    if settings.get("add_bos_token") is True:
        first = names["bos_token"]
        tokenizer.post_processor = package.processors.TemplateProcessing(
            single=f"{first}:0 $A:0", pair=f"{first}:0 $A:0 $B:1", special_tokens=[(first, vocabulary[first])]
        )
    add_special_tokens(package, tokenizer, names)
    return tokenizer


def build_clip(package: Any, folder: Folder) -> Any:
    """Returns the tokenizer that transformers' CLIPTokenizerFast builds, like `build_roberta`."""
    settings, vocabulary = tokenizer_settings(folder), _vocabulary(folder)
    names = special_tokens(settings, _CLIP_TOKENS, vocabulary)
    bpe = package.models.BPE(
        vocabulary, _merges(folder), end_of_word_suffix="</w>", fuse_unk=False, unk_token=names["unk_token"]
    )
    tokenizer = package.Tokenizer(bpe)
    of, split = package.normalizers, package.pre_tokenizers
    tokenizer.normalizer = of.Sequence([of.NFC(), of.Replace(package.Regex(r"\s+"), " "), of.Lowercase()])
    words = split.Split(package.Regex(_CLIP_WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = split.Sequence([words, split.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = package.decoders.ByteLevel()
    first, last = names["bos_token"], names["eos_token"]
    tokenizer.post_processor = package.processors.RobertaProcessing(
        (last, vocabulary[last]), (first, vocabulary[first]), trim_offsets=False, add_prefix_space=False
    )
    add_special_tokens(package, tokenizer, names)
    return tokenizer


def _byte_level(package: Any, folder: Folder, vocabulary: dict[str, int], spaced: bool) -> Any:
    bpe = package.models.BPE(
        vocabulary, _merges(folder), continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False
    )
    tokenizer = package.Tokenizer(bpe)
    tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    tokenizer.decoder = package.decoders.ByteLevel()
    return tokenizer


def _vocabulary(folder: Folder) -> dict[str, int]:
    found = folder.json("vocab.json")
    return {token: index for token, index in found.items() if isinstance(index, int) and index >= 0}


def _merges(folder: Folder) -> list[tuple[str, str]]:
    lines = folder.read("merges.txt", MAX_TOKENIZER_BYTES).decode("utf-8", "replace").split("\n")
    pairs = (line.split(" ") for line in lines if not line.startswith("#version"))
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
