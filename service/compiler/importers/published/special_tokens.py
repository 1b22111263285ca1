"""The special tokens of tokenizers in older formats, which `tokenizer_config.json` and the vocabulary define."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.texts import SPECIAL_TOKENS, TOKENIZER_CONFIG
from service.core.errors import InvalidInput


def tokenizer_settings(folder: Folder) -> dict[str, Any]:
    """Returns the settings of the tokenizer. Raises `InvalidInput` if a file is not a JSON object."""
    return {**folder.json(SPECIAL_TOKENS), **folder.json(TOKENIZER_CONFIG)}


def special_tokens(
    settings: Mapping[str, Any], defaults: Mapping[str, str], vocabulary: Mapping[str, int]
) -> dict[str, str]:
    """Returns the special tokens by their purpose. Raises `InvalidInput` if the vocabulary lacks one."""
    names = {}
    for purpose, default in defaults.items():
        given = settings.get(purpose, default)
        found = given.get("content") if isinstance(given, dict) else given
        names[purpose] = found if isinstance(found, str) else default
        if names[purpose] not in vocabulary:
            raise InvalidInput(f"the vocabulary does not contain the special token {names[purpose]}")
    return names


def add_special_tokens(package: Any, tokenizer: Any, names: Mapping[str, str], *, strips: bool = False) -> None:
    """Adds the special tokens. If `strips`, white space before the mask token belongs to it.

    Args:
        package: the package `tokenizers`.
    """
    others = [name for purpose, name in names.items() if purpose != "mask_token"]
    tokenizer.add_special_tokens(others)
    if "mask_token" in names:
        mask = package.AddedToken(names["mask_token"], lstrip=strips, normalized=False, special=True)
        tokenizer.add_special_tokens([mask])
