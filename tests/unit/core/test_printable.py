"""Tests of escaping untrusted text."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from service.core.printable import printable, printable_text

UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1/BiasAdd", "conv1/BiasAdd"),
        ("größe 日本 🙂", "größe 日本 🙂"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("exe.\u202egpj", r"exe.\u202egpj"),
        ("\x9b31m", r"\x9b31m"),  # the control sequence introducer as one character
        ("caf\udce9.tflite", r"caf\xe9.tflite"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_unsafe_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_text_keeps_its_line_breaks() -> None:
    assert printable_text("a\n\tb\x1b[2J\rc") == "a\n\tb\\x1b[2J\\rc"


def test_every_unsafe_character_of_unicode_is_escaped() -> None:
    passed = [chr(code) for code in range(sys.maxunicode + 1) if printable(chr(code)) == chr(code)]
    assert [hex(ord(each)) for each in passed if unicodedata.category(each) in UNSAFE] == []


def test_every_other_character_stays() -> None:
    escaped = [chr(code) for code in range(sys.maxunicode + 1) if printable(chr(code)) != chr(code)]
    assert {unicodedata.category(each) for each in escaped} <= UNSAFE | {"Cn"}
