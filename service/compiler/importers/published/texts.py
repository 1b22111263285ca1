"""The processing of text of a model, from the files of its tokenizer and of sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from service.compiler.importers.published.configuration import CONFIG, MODULES
from service.compiler.importers.published.files import Folder
from service.core.errors import InvalidInput, Unsupported
from service.core.models.text import MAX_TOKENS, Pooling, Side, TextProcessing
from service.core.printable import printable

TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
SENTENCES_CONFIG = "config_sentence_transformers.json"
LENGTHS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlnet_config.json")

_POOLINGS: Mapping[str, Pooling] = {
    "mean": Pooling.MEAN,
    "mean_tokens": Pooling.MEAN,
    "cls": Pooling.CLS,
    "cls_token": Pooling.CLS,
    "lasttoken": Pooling.LAST,
}
# Models whose first position is after that of the padding token, so that they have fewer positions than they declare.
_SHIFTED = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text"})


def read_text_processing(folder: Folder, tokenizer: Mapping[str, Any], *, is_pooled: bool) -> TextProcessing:
    """Returns the processing of text that the folder defines, without its tokenizer.

    Args:
        tokenizer: the members of `tokenizer.json`; empty without one.
        is_pooled: true if the model file itself computes one vector for each text.

    Raises:
        InvalidInput: a file is not a JSON object.
        Unsupported: a model of sentence-transformers has a step that Octet does not compute.
    """
    settings, sentences = folder.json(TOKENIZER_CONFIG), folder.json(SENTENCES_CONFIG)
    side = settings.get("padding_side")
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
        **_modules(folder, is_pooled=is_pooled),
    )


def _modules(folder: Folder, *, is_pooled: bool) -> dict[str, Any]:
    """Returns the pooling and the normalization of a model of sentence-transformers."""
    if MODULES not in folder:
        return {}
    found: dict[str, Any] = {"normalize": False}
    for kind, path in _steps(folder):
        match kind:
            case "Transformer":
                pass
            case "Pooling":
                if not is_pooled:
                    found["pooling"] = _pooling(folder, path)
            case "Normalize":
                found["normalize"] = True
            case _ if is_pooled and kind == "Dense":
                pass  # exporters that pool include the layers after it
            case _:
                raise Unsupported(
                    f"{MODULES} has the step {printable(kind)!r}, which Octet does not compute after a model",
                    hint="export the model with this step in the ONNX file",
                )
    return found


def _steps(folder: Folder) -> Iterator[tuple[str, str]]:
    """Yields the type and the folder of each step of sentence-transformers."""
    modules = folder.json_value(MODULES)
    if not isinstance(modules, list):
        raise InvalidInput(f"{MODULES} is not a JSON array")
    for module in modules:
        kind, path = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str):
            raise InvalidInput(f"a step in {MODULES} has no type or no path")
        yield kind.rpartition(".")[2], path


def _pooling(folder: Folder, path: str) -> Pooling:
    name = f"{path}/{CONFIG}"
    config = folder.json(name)
    mode = config.get("pooling_mode")
    flags = [key.removeprefix("pooling_mode_") for key, value in config.items() if value is True]
    modes = [mode] if isinstance(mode, str) else [flag for flag in flags if f"pooling_mode_{flag}" in config]
    if config.get("include_prompt") is False:
        raise Unsupported(f"{printable(name)} leaves the prompt out of the pooling, which Octet does not")
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        shown = printable(" and ".join(modes)) or "missing"
        raise Unsupported(
            f"the pooling in {printable(name)} is {shown}, but Octet computes mean, cls or last",
            hint="--pooling replaces it",
        )
    return _POOLINGS[modes[0]]


def _max_length(folder: Folder, settings: Mapping[str, Any], lengths: Mapping[str, Any]) -> int | None:
    """Returns the smallest of the lengths that the files define, because a longer text does not fit all of them."""
    config = folder.json(CONFIG)
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in _SHIFTED:
        padding = config.get("pad_token_id")
        positions -= (padding if isinstance(padding, int) else 1) + 1
    candidates = (lengths.get("max_seq_length"), settings.get("model_max_length"), positions)
    # Tokenizers without a limit have a model_max_length of 1e30.
    valid = [each for each in candidates if isinstance(each, int) and 1 <= each <= MAX_TOKENS]
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
