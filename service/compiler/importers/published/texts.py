"""The processing of text of a model, from the files of its tokenizer and of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.compiler.importers.published.configuration import CONFIG, MODULES, SENTENCES_CONFIG
from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.modules import Steps
from service.core.models.text import MAX_TOKENS, Side, TextProcessing

TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
LENGTHS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlnet_config.json")

# Models whose first position is after that of the padding token, so that they have fewer positions than they declare.
_SHIFTED = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text")


def read_text_processing(folder: Folder, tokenizer: Mapping[str, Any], steps: Steps) -> TextProcessing:
    """Returns the processing of text that the folder defines, without its tokenizer.

    Args:
        tokenizer: the members of `tokenizer.json`; empty without one.
        steps: the steps after the model.

    Raises:
        InvalidInput: a file is not a JSON object.
    """
    settings, sentences = folder.json(TOKENIZER_CONFIG), folder.json(SENTENCES_CONFIG)
    side = settings.get("padding_side")
    truncation = tokenizer.get("truncation")
    stored_end = truncation.get("direction") if isinstance(truncation, dict) else None
    end = str(settings.get("truncation_side", stored_end)).lower()
    prompts = sentences.get("prompts")
    named = {name: text for name, text in prompts.items() if isinstance(text, str)} if isinstance(prompts, dict) else {}
    default = sentences.get("default_prompt_name")
    lengths = next((found for name in LENGTHS if (found := folder.json(name))), {})
    return TextProcessing(
        max_length=_max_length(folder, settings, lengths),
        padding_side=Side(side) if side in tuple(Side) else None,
        pad_id=_pad_id(folder, settings, tokenizer),
        prompts=named,
        default_prompt=default if isinstance(default, str) and default in named else "",
        strips=True if MODULES in folder else None,
        lowercases=True if lengths.get("do_lower_case") is True else None,
        pooling=() if steps.layers else steps.pooling,  # the model file then contains the pooling
        normalize=steps.normalize,
        truncation_side=Side.LEFT if end == "left" else None,
    )


def _max_length(folder: Folder, settings: Mapping[str, Any], lengths: Mapping[str, Any]) -> int | None:
    """Returns the smallest of the lengths that the files define, because a longer text does not fit all of them."""
    config = folder.json(CONFIG)
    positions = config.get("max_position_embeddings")
    if type(positions) is int and config.get("model_type") in _SHIFTED:
        padding = config.get("pad_token_id")
        positions -= (padding if isinstance(padding, int) else 1) + 1
    candidates = (lengths.get("max_seq_length"), settings.get("model_max_length"), positions)
    # Tokenizers without a limit have a model_max_length of 1e30.
    valid = [each for each in candidates if type(each) is int and 1 <= each <= MAX_TOKENS]
    return min(valid, default=None)


def _pad_id(folder: Folder, settings: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> int | None:
    special = folder.json(SPECIAL_TOKENS)
    token = _content(settings.get("pad_token")) or _content(special.get("pad_token"))
    added = tokenizer.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and token is not None and entry.get("content") == token:
            return _token_id(entry.get("id"))
    padding = tokenizer.get("padding")
    found = padding.get("pad_id") if isinstance(padding, dict) else None
    return _token_id(found if found is not None else folder.json(CONFIG).get("pad_token_id"))


def _token_id(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def _content(token: Any) -> str | None:
    """Returns the text of a token, which is stored as a string or as an object with its options."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None
