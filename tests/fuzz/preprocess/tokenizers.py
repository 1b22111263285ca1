"""Hostile `tokenizer.json` files."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.tokenizers import byte_level, unigram, wordpiece

Members = dict[str, Any]
_MOST_NESTED_BYTES = 1 << 18
_PATTERNS = (
    *("(a+)+$", "(a|a)*b", "(a|aa)+$", "(?=(a+))a*b\\1", "(?:a?){60}a{60}", "((a{1,1000}){1,1000}){1,1000}", "(", "\\"),
    *("(?<=a+)b", "[\\s\\S]*?(?:x+x+)+y", "\\p{L}+", "(?i)\u017f", "", "^", "$", ".*", "a{0,100000}", "(?:(?:a*)*)*b"),
    *("(" * 200 + ")" * 200, "(?:" * 2_000 + ")" * 2_000, "|" * 4_000, "[" + "a-z" * 1_000 + "]", "(?<n>a)\\k<n>*b"),
)
ODD: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**32, 2**63, 2**64, -(2**63), 1e308, -0.5, float("nan"), float("inf")),
    *(
        "",
        "\u2581",
        "a",
        "\ud7ff",
        "x" * 10_000,
        [],
        {},
        [[]],
        {"type": "?"},
        [None],
        {"Regex": "(a+)+$"},
        {"String": ""},
    ),
)
TEXTS = (
    *("a" * 30 + "b", "a" * 5_000 + "!", "the fox", "", " ", "aaaa " * 1_000, "\u00e9\u0301" * 500, "the" * 2_000),
    *("[CLS] the [SEP]" * 200, "\0" * 100, "x" * 100_000, "fox " * 20_000, "\u2581" * 1_000, "ab" * 50_000),
)


def tokenizer(rng: random.Random) -> bytes:
    """Returns the bytes of a file."""
    members: Members = json.loads(rng.choice((wordpiece, byte_level, unigram))().to_str())
    for _ in range(rng.choice((1, 1, 2, 4))):
        members = rng.choice(_ATTACKS)(members, rng)
    data = json.dumps(members).encode()
    if rng.random() < 0.05:
        at = rng.randrange(len(data))
        data = data[:at] + rng.choice((b"", b"[" * 100_000, b"\xff\xfe", b'{"a":' * 50)) + data[at + 1 :]
    return data


def text(rng: random.Random) -> str:
    return rng.choice(TEXTS)


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """Returns all (container, key) in a JSON value, except for most entries of large ones."""
    found: list[tuple[Any, Any]] = []
    keys: Sequence[Any] = ()
    if isinstance(value, dict):
        keys = list(value)[:20]
    elif isinstance(value, list):
        keys = range(min(len(value), 20))
    for key in keys:
        found += [(value, key), *nodes(value[key])]
    return found


def _change(members: Members, rng: random.Random) -> Members:
    """Replaces, removes or copies a random part."""
    changed = copy.deepcopy(members)
    parts = nodes(changed)
    container, key = rng.choice(parts)
    match rng.randrange(4):
        case 0 | 1:
            container[key] = rng.choice(ODD)
        case 2:
            del container[key]
        case _:
            other, name = rng.choice(parts)
            container[key] = copy.deepcopy(other[name]) if name in other or isinstance(other, list) else None
    return changed


def _with(**parts: Callable[[random.Random], Any]) -> Callable[[Members, random.Random], Members]:
    def change(members: Members, rng: random.Random) -> Members:
        return {**members, **{name: draw(rng) for name, draw in parts.items()}}

    return change


def _split(rng: random.Random) -> Members:
    pattern = rng.choice(({"Regex": rng.choice(_PATTERNS)}, {"String": rng.choice(("", "a", "aa"))}))
    behavior = rng.choice(("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"))
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": rng.random() < 0.5}


def _explode(rng: random.Random) -> Members:
    """Returns a normalizer whose output is a power of the length of its input."""
    old = rng.choice(({"String": "a"}, {"Regex": "."}, {"String": ""}, {"Regex": ""}))
    one = {"type": "Replace", "pattern": old, "content": "a" * rng.choice((2, 4, 1_000, 100_000))}
    other = {"type": "Prepend", "prepend": "x" * rng.choice((1, 1_000_000))}
    return {"type": "Sequence", "normalizers": [rng.choice((one, other)) for _ in range(rng.choice((1, 4, 30)))]}


def _nested(what: str, inner: Members) -> Callable[[random.Random], Members]:
    def draw(rng: random.Random) -> Members:
        found, size = inner, len(json.dumps(inner))
        for _ in range(rng.choice((5, 14, 31, 200))):
            copies = rng.choice((1, 1, 2)) if size < _MOST_NESTED_BYTES else 1
            found, size = {"type": "Sequence", what: [found] * copies}, copies * size
        return found

    return draw


def _template(rng: random.Random) -> Members:
    pieces = [{"Sequence": {"id": rng.choice("AB"), "type_id": rng.choice((0, 1, 2**32 - 1))}}] * rng.choice(
        (0, 1, 50_000)
    )
    special = {"SpecialToken": {"id": rng.choice(("[CLS]", "missing")), "type_id": 0}}
    token = {
        "id": "[CLS]",
        "ids": [rng.choice((0, 2, 2**31, 2**32 - 1))] * rng.choice((0, 1, 100_000)),
        "tokens": ["[CLS]"],
    }
    return {
        "type": "TemplateProcessing",
        "single": [special, *pieces],
        "pair": [*pieces, special] * rng.choice((0, 1)),
        "special_tokens": {"[CLS]": token},
    }


def _added(rng: random.Random) -> list[Members]:
    contents = ("", " ", "a", "aa", "aaa", "[CLS]", "the", "\u2581", "a" * 100_000, "\u0301", "\0")
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [
        {
            "id": rng.choice((index, 0, 2**32 - 1)),
            "content": rng.choice(contents) if rng.random() < 0.7 else f"t{index}",
            **{flag: rng.random() < 0.5 for flag in flags},
        }
        for index in range(rng.choice((1, 20, 5_000)))
    ]


def _model(rng: random.Random) -> Members:
    words = {f"w{index}": index for index in range(rng.choice((0, 1, 1_000, 300_000)))}
    scores = (0.0, -1.0, float("nan"), float("inf"), -1e308)
    match rng.randrange(4):
        case 0:
            unigrams = [[word, rng.choice(scores)] for word in [*words, "a", "a" * rng.choice((2, 100_000))]]
            fallback = {"byte_fallback": rng.random() < 0.5}
            return {"type": "Unigram", "unk_id": rng.choice((None, 0, 10**9)), "vocab": unigrams, **fallback}
        case 1:
            pieces = [*words, "a", *(["a" * (1 << each) for each in range(1, 17)])]
            merges = [["a" * (1 << each)] * 2 for each in range(16)]
            sizes: Members = {"dropout": rng.choice((None, 0.5, 1.0)), "cache_capacity": rng.choice((0, 10_000, 2**62))}
            return {"type": "BPE", "vocab": {word: at for at, word in enumerate(pieces)}, "merges": merges, **sizes}
        case 2:
            limits: Members = {
                "max_input_chars_per_word": rng.choice((0, 100, 2**62)),
                "unk_token": rng.choice(("w0", "none")),
            }
            prefix = rng.choice(("##", "", "a" * 10_000))
            return {
                "type": "WordPiece",
                "vocab": {**words, "a": 5, "##a": 6},
                "continuing_subword_prefix": prefix,
                **limits,
            }
        case _:
            return {"type": "WordLevel", "vocab": {**words, "a": rng.choice((0, 2**32 - 1))}, "unk_token": "w0"}


def _charsmap(rng: random.Random) -> Members:
    characters = "ABCDEFGHabcdefgh0123456789+/"
    return {"type": "Precompiled", "precompiled_charsmap": "".join(rng.choices(characters, k=rng.choice((0, 4, 400))))}


_ATTACKS: Sequence[Callable[[Members, random.Random], Members]] = (
    *(_change, _change, _change),
    *(_with(pre_tokenizer=_split), _with(pre_tokenizer=_split), _with(normalizer=_explode)),
    _with(normalizer=lambda rng: {"type": "Replace", "pattern": {"Regex": rng.choice(_PATTERNS)}, "content": "b"}),
    _with(normalizer=_nested("normalizers", {"type": "NFKD"})),
    _with(
        pre_tokenizer=_nested("pretokenizers", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True})
    ),
    *(_with(post_processor=_template), _with(added_tokens=_added), _with(model=_model), _with(normalizer=_charsmap)),
    _with(truncation=lambda rng: {"max_length": rng.choice((0, 5)), "strategy": "OnlySecond", "stride": 2**40}),
    _with(padding=lambda rng: {"strategy": {"Fixed": 2**40}, "direction": "Left", "pad_id": 2**32 - 1}),
)
