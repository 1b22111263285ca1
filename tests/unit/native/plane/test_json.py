"""Compares the data plane's JSON reader with Python's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.native import built_program

_DIGITS = st.text("0123456789", min_size=1, max_size=40)
_NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**40), 10**40).map(str),
    st.builds("{}.{}e{}".format, st.integers(0, 10**6), _DIGITS, st.integers(-330, 330)),
    st.text("0123456789-+.eE", min_size=1, max_size=12),
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


_DATATYPES: dict[str, Any] = {"INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32, "INT64": np.int64}
_ELEMENTS = st.one_of(
    st.integers(-130, 260).map(str),
    st.integers(-(10**10), 10**10).map(str),
    st.sampled_from(["0", "-0", "007", "1.0", "1e2", "-", "", "true", "[1]", "99999999", "-128", "255", "127", "x"]),
)


class Probe:
    """A running `json_probe.cc`."""

    def __init__(self, *program: Path | str) -> None:
        self._process = subprocess.Popen(program, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)

    def ask(self, verb: str, text: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{verb} {text}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def program() -> Path:
    return built_program("json_probe")


@pytest.fixture(scope="module")
def probe(program: Path) -> Iterator[Probe]:
    probe = Probe(program)
    yield probe
    probe.end()


@pytest.fixture(scope="module")
def portable(program: Path) -> Iterator[Probe]:
    """The probe without AVX-512, as on processors that lack it."""
    probe = Probe(program, "portable")
    yield probe
    probe.end()


def _number(text: str) -> str:
    """Returns the number in C's hexadecimal format, or `error`."""
    try:
        return float.fromhex(float(json.loads(text)).hex()).hex()
    except (ValueError, OverflowError):
        return "error"


@given(_NUMBERS)
def test_numbers_are_those_of_python(probe: Probe, text: str) -> None:
    answer = probe.ask("number", text)
    if "inf" in answer or len(text) > 300:
        return
    assert (answer if answer == "error" else float.fromhex(answer).hex()) == _number(text)


def _between(low: float, digits: int) -> str:
    """Returns the midpoint between a float32 and the next float32, with some digits."""
    high = float(np.nextafter(np.float32(low), np.float32(np.inf)))
    return f"{(low + high) / 2:.{digits}e}"


_SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)


@given(st.one_of(_NUMBERS, _SINGLES.map(repr), st.builds(_between, _SINGLES, st.integers(0, 30))))
def test_float32_is_rounded_as_through_a_double(probe: Probe, text: str) -> None:
    number, single = probe.ask("number", text), probe.ask("single", text)
    if number == "error":
        assert single == "error"
        return
    with np.errstate(over="ignore", under="ignore"):
        assert np.float32(float.fromhex(number)).tobytes() == np.float32(float.fromhex(single)).tobytes()


@given(_TEXTS, st.booleans())
def test_strings_are_those_of_python(probe: Probe, text: str, ascii_only: bool) -> None:
    written = json.dumps(text, ensure_ascii=ascii_only).encode()
    assert probe.ask("string", written.hex()) == text.encode().hex()
    if text:
        assert json.loads(probe.ask("write", text.encode().hex())) == text


@given(_VALUES, st.sampled_from([None, 1, "\t"]))
def test_accepts_what_python_writes(probe: Probe, value: object, indent: int | str | None) -> None:
    assert probe.ask("value", json.dumps(value, indent=indent).encode().hex()) == "ok"


@given(st.text('{}[]",:0-.eE1 tfn\\u"', min_size=1, max_size=24))
def test_accepts_no_more_than_python(probe: Probe, text: str) -> None:
    try:
        json.loads(text)
        is_json = "NaN" not in text
    except ValueError:
        is_json = False
    answer = probe.ask("value", text.encode().hex())
    if "\\u" not in text:  # half of a surrogate pair is refused, but Python accepts it
        assert answer == ("ok" if is_json else "error")
    elif not is_json:
        assert answer == "error"


@pytest.mark.parametrize("text", ["ff", "c080", "eda080", "f4908080", "e282"])
def test_refuses_what_is_not_utf8(probe: Probe, text: str) -> None:
    assert probe.ask("value", f"22{text}22") == "error"
    assert "�" in probe.ask("write", text)


def _separated(draw: Callable[[st.SearchStrategy[str]], str], elements: Sequence[str]) -> str:
    separator = draw(st.sampled_from([",", ", ", " ,", ",  ", ",\n"]))
    return "[" + separator.join(elements) + draw(st.sampled_from(["]", "]", "]", " ]", ",]"]))


@given(st.data())
def test_tensors_of_whole_numbers_are_those_of_python(probe: Probe, portable: Probe, data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from(sorted(_DATATYPES)))
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 90))  # blocks contain more than 40 elements
    limits: Any = np.iinfo(_DATATYPES[datatype])
    usual = st.integers(max(-999, limits.min), min(999, limits.max)).map(str)
    lines = [[data.draw(usual) for _ in range(columns)] for _ in range(rows)]
    for _ in range(data.draw(st.integers(0, 1))):
        lines[data.draw(st.integers(0, rows - 1))][data.draw(st.integers(0, columns - 1))] = data.draw(_ELEMENTS)
    if data.draw(st.booleans()):
        text = _separated(data.draw, [_separated(data.draw, line) for line in lines])
    else:
        text = _separated(data.draw, [element for line in lines for element in line])
    for each in (probe, portable):
        answer = each.ask("tensor", f"{datatype} {rows} {columns} {text.encode().hex()}")
        assert answer == _tensor(text, (rows, columns), limits)


def _tensor(text: str, shape: tuple[int, int], limits: Any) -> str:
    """Returns the elements as the probe prints them, or `error`."""
    try:
        values = json.loads(text, parse_float=lambda _: None, parse_constant=lambda _: None)
        array = np.array(values, object)
    except ValueError:
        return "error"
    whole = all(type(value) is int and limits.min <= value <= limits.max for value in array.ravel())
    if not whole or array.shape not in (shape, (shape[0] * shape[1],)):
        return "error"
    return "".join(f"{value} " for value in array.ravel()).rstrip("\n")
