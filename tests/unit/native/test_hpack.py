"""Tests header compression with the RFC's examples, and with blocks that must not decode."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.http2_cases import BROKEN_BLOCKS
from tests.support.http2_frames import integer, literal
from tests.support.native import built_program

_DATE = "Mon, 21 Oct 2013 20:13:{} GMT"
_COOKIE = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
_HUNDREDS = "3fe101"  # sets the table size to 256 bytes, which the examples C.5 and C.6 assume

_KEPT = 0x40  # a field that is added to the table

_REQUESTS = [
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
]


def _response(status: str, second: str) -> list[tuple[str, str]]:
    rest = [("cache-control", "private"), ("date", _DATE.format(second)), ("location", "https://www.example.com")]
    return [(":status", status), *rest]


_RESPONSES = [
    _response("302", "21"),
    _response("307", "21"),
    [*_response("200", "22"), ("content-encoding", "gzip"), ("set-cookie", _COOKIE)],
]

# RFC 7541 appendix C: the blocks of one connection, and their fields.
_EXAMPLES = {
    "C.2.1": (["400a637573746f6d2d6b65790d637573746f6d2d686561646572"], [[("custom-key", "custom-header")]]),
    "C.2.2": (["040c2f73616d706c652f70617468"], [[(":path", "/sample/path")]]),
    "C.2.3": (["100870617373776f726406736563726574"], [[("password", "secret")]]),
    "C.2.4": (["82"], [[(":method", "GET")]]),
    "C.3": (
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        _REQUESTS,
    ),
    "C.4": (
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
        _REQUESTS,
    ),
    "C.5": (
        [
            _HUNDREDS + "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
            "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48"
            "514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
        ],
        _RESPONSES,
    ),
    "C.6": (
        [
            _HUNDREDS + "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b"
            "97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af"
            "27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ],
        _RESPONSES,
    ),
}


@pytest.fixture(scope="module")
def program() -> Path:
    return built_program("hpack_probe")


def _ask(program: Path, *lines: str) -> list[list[str]]:
    """Returns the responses to `lines`, each as a list of lines."""
    run = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers: list[list[str]] = [[]]
    for line in run.stdout.splitlines():
        if line:
            answers[-1].append(line)
        else:
            answers.append([])
    return answers[:-1]


def _decoded(program: Path, *blocks: str) -> list[list[str]]:
    return _ask(program, *(f"decode {block}" for block in blocks))


@pytest.mark.parametrize("example", _EXAMPLES)
def test_the_examples_of_the_rfc_decode(program: Path, example: str) -> None:
    blocks, lists = _EXAMPLES[example]
    assert _decoded(program, *blocks) == [["\t".join(field) for field in fields] for fields in lists]


@pytest.mark.parametrize("block", [pytest.param(block, id=title) for _, title, block in BROKEN_BLOCKS])
def test_a_broken_block_does_not_decode(program: Path, block: str) -> None:
    assert _decoded(program, block) == [["error"]]


def test_an_entry_larger_than_the_table_empties_it(program: Path) -> None:
    small, large = (literal("a", "b" * size, _KEPT).hex() for size in (1, 4096))
    newest = integer(62, 7, 0x80).hex()
    assert _decoded(program, small, newest, large, newest) == [["a\tb"], ["a\tb"], ["a\t" + "b" * 4096], ["error"]]


def test_a_name_outlives_the_entry_that_it_is_taken_from(program: Path) -> None:
    """A new entry may evict the entry whose name it uses (RFC 7541 section 4.4)."""
    name, room = "n" * 60, integer(100, 5, 0x20)  # an entry has 60 + 1 + 32 bytes
    same_name = integer(62, 6, _KEPT) + integer(1, 7) + b"y"
    blocks = [room + literal(name, "x", _KEPT), same_name, integer(62, 7, 0x80), integer(63, 7, 0x80)]
    answers = _decoded(program, *(block.hex() for block in blocks))
    assert answers == [[f"{name}\tx"], [f"{name}\ty"], [f"{name}\ty"], ["error"]]


def test_a_list_beyond_its_limit_is_decoded_but_discarded(program: Path) -> None:
    """A few bytes can expand to many, because they refer to an entry of the table again and again."""
    entry, bomb = literal("a", "b" * 4000, _KEPT), integer(62, 7, 0x80) * 1000
    _, first, second, third = _ask(program, "new 9000", *(f"decode {block.hex()}" for block in (entry, bomb, b"\x82")))
    assert first == ["a\t" + "b" * 4000]
    assert second == [*first, *first, "overflowed"]
    assert third == [":method\tGET"]  # the discarded fields have not disturbed the table


@pytest.mark.parametrize(
    ("name", "value", "block"),
    [
        (":status", "200", "88"),
        (":status", "431", "0803343331"),
        ("grpc-status", "0", "000b677270632d7374617475730130"),
        ("content-type", "application/grpc", "0f10106170706c69636174696f6e2f67727063"),
        ("x", "y" * 200, "0001787f49" + "79" * 200),
    ],
)
def test_fields_are_encoded_without_a_table(program: Path, name: str, value: str, block: str) -> None:
    (answer,) = _ask(program, f"encode {name} {value}")
    assert [line for line in answer if line] == [block]
    assert _decoded(program, block) == [[f"{name}\t{value}"]]
