"""The settings in `tokenizer_config.json` and `added_tokens.json` that replace parts of `tokenizer.json`, as in
transformers' AutoTokenizer.

Release 4 of transformers applies more settings than release 5, and release 5 others. Here are those that both apply in
the same way; `tests/conformance/test_tokenization.py` compares both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.texts import TOKENIZER_CONFIG
from service.core.errors import Unsupported

Members = dict[str, Any]
ADDED_TOKENS = "added_tokens.json"
_GENERIC = ("PreTrained", "TokenizersBackend")  # classes that have no settings of their own
_NORMALIZER: Mapping[str, str] = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_SPACED = ("Roberta", "GPT2", "Bart", "Longformer", "LED", "Mvp", "Deberta", "Blenderbot")  # with add_prefix_space
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def apply_settings(members: Mapping[str, Any], folder: Folder) -> Members:
    """Returns the members of a `tokenizer.json` with the settings of the folder.

    Raises:
        InvalidInput: a file is not a JSON object.
        Unsupported: a setting cannot be applied.
    """
    settings = folder.json(TOKENIZER_CONFIG)
    if settings.get("split_special_tokens") is True:
        raise Unsupported(
            f"{TOKENIZER_CONFIG} sets split_special_tokens, which Octet does not do", hint="remove the setting"
        )
    found = dict(members)
    name = str(settings.get("tokenizer_class", "")).removesuffix("Fast").removesuffix("Tokenizer")
    normalizer: Any = found.get("normalizer")
    splitter: Any = found.get("pre_tokenizer")
    if _is(normalizer, "BertNormalizer") and name not in _GENERIC:
        given = {part: settings[setting] for setting, part in _NORMALIZER.items() if _is_flag(settings, setting)}
        found["normalizer"] = {**normalizer, **given}
    if _is(splitter, "ByteLevel") and name in _SPACED and isinstance(settings.get("add_prefix_space"), bool):
        found["pre_tokenizer"] = {**splitter, "add_prefix_space": settings["add_prefix_space"]}
    added = list(_added_tokens(found, settings, folder))
    if added:
        found["added_tokens"] = [*_added_before(found), *added]
    return found


def _is(part: Any, name: str) -> bool:
    return isinstance(part, dict) and part.get("type") == name


def _is_flag(settings: Mapping[str, Any], setting: str) -> bool:
    return setting in settings and (settings[setting] is None or isinstance(settings[setting], bool))


def _added_tokens(tokenizer: Members, settings: Mapping[str, Any], folder: Folder) -> Iterator[Members]:
    """Yields the tokens that the settings add, in the order of their ids."""
    before = _added_before(tokenizer)
    contents = {str(each.get("content")) for each in before}
    vocabulary = _vocabulary(tokenizer["model"])
    taken = [each["id"] for each in before if isinstance(each.get("id"), int)]
    next_id = max([*vocabulary.values(), *taken], default=-1) + 1
    for token in _tokens_of_settings(settings, folder):
        content = token["content"]
        if content and content not in contents:
            contents.add(content)
            if content in vocabulary:
                yield {"id": vocabulary[content], **token}
            else:
                yield {"id": next_id, **token}
                next_id += 1


def _added_before(tokenizer: Members) -> list[Members]:
    found = tokenizer.get("added_tokens")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _tokens_of_settings(settings: Mapping[str, Any], folder: Folder) -> Iterator[Members]:
    decoder = settings.get("added_tokens_decoder")
    for _, token in sorted((decoder if isinstance(decoder, dict) else {}).items(), key=lambda each: _order(each[0])):
        if isinstance(token, dict) and isinstance(token.get("content"), str):
            yield _token(token)
    encoder = {token: index for token, index in folder.json(ADDED_TOKENS).items() if isinstance(index, int)}
    for token in sorted(encoder, key=lambda each: encoder[each]):
        yield _token({"content": token, "normalized": True})
    extra = settings.get("additional_special_tokens")
    for token in (*(settings.get(name) for name in _SPECIAL), *(extra if isinstance(extra, list) else ())):
        if isinstance(token, str):
            yield _token({"content": token, "special": True})
        elif isinstance(token, dict) and isinstance(token.get("content"), str):
            yield _token({**token, "special": True})


def _token(members: Mapping[str, Any]) -> Members:
    return {"content": members["content"], **{flag: members.get(flag) is True for flag in _FLAGS}}


def _order(index: str) -> int:
    return int(index) if index.isascii() and index.isdigit() and len(index) < 10 else 1 << 31


def _vocabulary(model: Mapping[str, Any]) -> Mapping[str, int]:
    """Returns the ids of a model's tokens."""
    found = model.get("vocab")
    if isinstance(found, dict):
        return {token: index for token, index in found.items() if isinstance(index, int)}
    pairs = enumerate(found) if isinstance(found, list) else ()
    return {pair[0]: index for index, pair in pairs if isinstance(pair, list) and pair and isinstance(pair[0], str)}


def applied(data: bytes, members: Mapping[str, Any], folder: Folder) -> bytes:
    """Returns the bytes of a `tokenizer.json` with the settings of the folder; `data` itself if they change nothing."""
    found = apply_settings(members, folder)
    return data if found == members else json.dumps(found, ensure_ascii=False).encode()
