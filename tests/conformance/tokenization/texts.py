"""Random texts for tokenizers: all scripts of Unicode, and what users and attackers send beside words.

A text is determined by a seed and its number, so a difference can be reproduced alone.
"""

from __future__ import annotations

import random
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal

LINE_BYTES = 1 << 20  # `MAX_TEXT_BYTES` of service/workers/preprocess/texts.py
LONG_EVERY = 50_000  # one text of that many is a line of LINE_BYTES

_SURROGATES = range(0xD800, 0xE000)
_ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\u034f\u061c\ufff9\ufffa\ufffb"
_BIDI = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_SPACES = "".join(map(chr, (*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)))) + (
    "\u2028\u2029\u202f\u205f\u3000"
)
_CONTROLS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_EMOJI = "".join(map(chr, (*range(0x1F300, 0x1F650), *range(0x1F680, 0x1F6D8), *range(0x1F900, 0x1FA00))))
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_KEYCAPS = "0123456789#*"
_TAGS = "".join(map(chr, range(0xE0020, 0xE0080)))
_SPECIAL = (
    *("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "[cls]", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<bos>"),
    *("<eos>", "<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<EOT>", "<META>", "<0x0A>", "<0xFF>", "##ing"),
    *("\u2581", "\u2581the", "\u0120", "\u0120the", "\u010a", "@@", "</w>", "<start_of_turn>", "<2mass>", "[unused1]"),
)
_FORMS: Sequence[Literal["NFC", "NFD", "NFKC", "NFKD"]] = ("NFC", "NFD", "NFKC", "NFKD")
_SNIPPETS = (
    *("https://example.org/a?b=c&d=%20#e", "user@example.org", "C:\\Windows\\System32", "/usr/bin/env python3"),
    *("def f(x):\n\treturn x ** 2  # squared\n", "if (a && b || !c) { return a->b[i++]; }", '{"a": [1, 2.5e-3, null]}'),
    *("<p class='x'>&nbsp;&amp;</p>", "SELECT * FROM t WHERE a = 'b';--", "2026-11-28T07:28:32.123Z", "$1,234.56"),
    *("don't we'll they're I'd it's he'S WE'LL", "1st 2nd 3rd 4th", "3.14159 1e10 0x1F 1_000", "a-b_c.d,e;f:g!h?"),
    *("The quick brown fox jumps over the lazy dog.", "  two  spaces   and\ttabs\t\t", "\r\nlines\n\n\n\rends\r"),
)


def texts(seed: int, first: int, count: int) -> Iterator[str]:
    """Yields the texts with the numbers `first` to `first + count - 1`."""
    for number in range(first, first + count):
        yield text(seed, number)


def text(seed: int, number: int) -> str:
    """Returns one text. It has no surrogates, and at most `LINE_BYTES` bytes in UTF-8."""
    rng = random.Random(f"{seed}/{number}")  # which does not depend on the texts before
    if number % LONG_EVERY == LONG_EVERY - 1:
        return _line(rng)
    parts = rng.choices((1, 2, 5), (85, 13, 2))[0]
    return "".join(rng.choices(_DRAWS, _WEIGHTS)[0](rng) for _ in range(parts))


def _words(rng: random.Random) -> str:
    letters = rng.choice(_scripts())
    return rng.choice((" ", " ", " ", "", ". ", "\n")).join(
        "".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(rng.randint(1, 4))
    )


def _latin(rng: random.Random) -> str:
    words = ["".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1), k=rng.randint(1, 10)))]
    words += ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 8))) for _ in range(rng.randint(0, 8))]
    return " ".join(rng.choice((str.lower, str.title, str.upper, str.lower))(word) for word in words)


def _assigned(rng: random.Random) -> str:
    return "".join(rng.choices(_all_assigned(), k=rng.randint(1, 15)))


def _any_scalar(rng: random.Random) -> str:
    points = (rng.randrange(sys.maxunicode + 1) for _ in range(rng.randint(1, 20)))
    return "".join(chr(each) for each in points if each not in _SURROGATES)


def _emoji(rng: random.Random) -> str:
    def one() -> str:
        match rng.randrange(7):
            case 0:
                return "\u200d".join(rng.choices(_EMOJI, k=rng.randint(2, 5)))
            case 1:
                return rng.choice(_EMOJI) + rng.choice(_SKIN_TONES)
            case 2:
                return "".join(rng.choices(_FLAGS, k=rng.randint(1, 5)))
            case 3:
                return rng.choice(_KEYCAPS) + rng.choice(("\ufe0f\u20e3", "\u20e3", "\ufe0f"))
            case 4:
                return "\U0001f3f4" + "".join(rng.choices(_TAGS, k=rng.randint(1, 6))) + "\U000e007f"
            case 5:
                return rng.choice("\u2764\u263a\u2122\u00a9\u2603\u260e") + rng.choice(("\ufe0f", "\ufe0e", ""))
            case _:
                return rng.choice(_EMOJI)

    return rng.choice(("", " ")).join(one() for _ in range(rng.randint(1, 8)))


def _combining(rng: random.Random) -> str:
    marks = _marks()
    bases = "aeiounAEO\u0905\u0e01\u05d0\u0627\u1100\u1161 \u25cc"
    return "".join(
        rng.choice(bases) + "".join(rng.choices(marks, k=rng.choice((0, 0, 1, 1, 1, 2, 3, 20))))
        for _ in range(rng.randint(1, 5))
    )


def _normalized(rng: random.Random) -> str:
    return unicodedata.normalize(rng.choice(_FORMS), _assigned(rng))


def _spread(characters: str, letters: str = "abc \u05d0\u0627\u4e00") -> Callable[[random.Random], str]:
    def draw(rng: random.Random) -> str:
        return "".join(rng.choice(characters if rng.random() < 0.5 else letters) for _ in range(rng.randint(1, 12)))

    return draw


def _whitespace(rng: random.Random) -> str:
    return "".join(rng.choices(_SPACES, k=rng.randint(0, 20)))


def _run(rng: random.Random) -> str:
    character = rng.choice((rng.choice("a1 .\n\u4e00\u0301\u200d-_=\U0001f600"), rng.choice(_all_assigned())))
    return character * rng.choice((2, 3, 7, 50, 101, 600))


def _private(rng: random.Random) -> str:
    blocks = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
    return "".join(chr(rng.choice(rng.choice(blocks))) for _ in range(rng.randint(1, 6)))


def _special(rng: random.Random) -> str:
    return rng.choice(("", " ", "a", "  ")).join(rng.choices(_SPECIAL, k=rng.randint(1, 4)))


def _snippet(rng: random.Random) -> str:
    found = rng.choice(_SNIPPETS)
    begin = rng.randint(0, len(found) - 1)
    return found[begin : rng.randint(begin + 1, len(found))] if rng.random() < 0.3 else found


def _empty(_: random.Random) -> str:
    return ""


def _line(rng: random.Random) -> str:
    """Returns a line of about a megabyte: a repeated piece, or many different words."""
    piece = rng.choice((_latin, _words, _run, _assigned, _emoji))(rng) or "a"
    if rng.random() < 0.5:
        found = piece * (LINE_BYTES // len(piece.encode()) + 1)
    else:
        found = " ".join(_words(rng) for _ in range(8_000))
    return found.replace("\n", " ").encode()[:LINE_BYTES].decode(errors="ignore")


@cache
def _all_assigned() -> str:
    return "".join(
        chr(each) for each in range(sys.maxunicode + 1) if unicodedata.category(chr(each)) not in ("Cn", "Cs", "Co")
    )


@cache
def _marks() -> str:
    return "".join(each for each in _all_assigned() if unicodedata.category(each).startswith("M"))


@cache
def _scripts() -> Sequence[str]:
    """Returns the letters, marks and digits of each script: the characters whose names begin with the same word."""
    found: Mapping[str, list[str]] = defaultdict(list)
    for each in _all_assigned():
        if unicodedata.category(each)[0] in "LMN":
            found[unicodedata.name(each, "UNNAMED").partition(" ")[0]].append(each)
    return ["".join(letters) for letters in found.values()]


_DRAWS, _WEIGHTS = zip(
    *(
        *((_latin, 20), (_words, 25), (_assigned, 10), (_any_scalar, 5), (_emoji, 8), (_combining, 6)),
        *(
            (_normalized, 5),
            (_spread(_ZERO_WIDTH), 3),
            (_spread(_BIDI), 3),
            (_spread(_CONTROLS), 4),
            (_spread(_SPACES), 3),
        ),
        *((_whitespace, 2), (_run, 2), (_private, 2), (_special, 6), (_snippet, 8), (_empty, 0.5)),
    ),
    strict=True,
)
