"""Compares header compression with the package `hpack`. Valid and damaged blocks are decoded equally, and if only one
decoder refuses a block, the reason is listed here.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from tests.support.http2_frames import integer
from tests.support.native import built_program

CONNECTIONS, SEED = 20_000, 1
_LITERALS = ((6, 0x40), (6, 0x40), (4, 0x00), (4, 0x10))  # number of index bits and the pattern above them: section 6.2
_NAMES = (b":method", b":path", b"content-type", b"te", b"x", b"grpc-timeout", b"authorization", b"n" * 60)
_VALUES = (b"", b"GET", b"/", b"application/grpc", b"trailers", b"v" * 200, b"~!@#", b"1S", b"\xe9\xff")
_TABLE_SIZES = (0, 61, 100, 300, 4096, 4097)
_SPOILS = (b"", b"\x00", b"\xff", b"\x80", b"\x7f\xff\xff\xff\xff\xff\x0f")
_HUFFMAN = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)

_MOST_CHANGES = 2
_CHANGE = re.compile(rb"[\x20-\x3e]|\x3f[\x80-\xff]*[\0-\x7f]")
_CHANGES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\0-\x7f])+")
_LONG_INTEGER = re.compile(rb"[\x80-\xff]\x80{3,}\0")

Fields = list[tuple[bytes, bytes]]
Decoded = list[Fields | None]  # decoded blocks of a connection, up to the first refused one, which is None


@pytest.fixture(scope="module")
def program() -> Path:
    return built_program("hpack_probe")


def decode_with_plane(program: Path, connections: Sequence[Sequence[bytes]]) -> list[Decoded]:
    lines = [line for blocks in connections for line in ("new 1000000", *(f"fields {each.hex()}" for each in blocks))]
    output = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers = _split_answers(output.stdout)
    decoded = []
    for blocks in connections:
        next(answers)
        decoded.append(_to_the_first_refused([_fields(next(answers)) for _ in blocks]))
    return decoded


def _split_answers(output: str) -> Iterator[list[str]]:
    """Yields the lines of each response; an empty line ends it."""
    lines = iter(output.splitlines())
    while (line := next(lines, None)) is not None:
        yield [line, *takewhile(bool, lines)] if line else []


def _fields(lines: Sequence[str]) -> Fields | None:
    return (
        None
        if lines == ["error"]
        else [(bytes.fromhex(name), bytes.fromhex(value)) for name, value in (line.split("\t") for line in lines)]
    )


def _to_the_first_refused(decoded: Decoded) -> Decoded:
    """Drops what follows a refused block, since the connection has ended (RFC 9113, section 4.3)."""
    return decoded[: decoded.index(None) + 1] if None in decoded else decoded


def decode_with_hpack(blocks: Sequence[bytes]) -> Decoded:
    decoder, decoded = hpack.Decoder(1 << 20), Decoded()
    for block in blocks:
        try:
            pairs = decoder.decode(block, raw=True)
        except hpack.HPACKError:
            return [*decoded, None]
        decoded.append([(name, value) for name, value in pairs])
    return decoded


def text(chance: random.Random, content: bytes) -> bytes:
    """Encodes a string, compressed or not (RFC 7541, section 5.2)."""
    encoded = _HUFFMAN.encode(content)
    return integer(len(encoded), 7, 0x80) + encoded if chance.random() < 0.5 else integer(len(content), 7) + content


def index(chance: random.Random, value: int, bits: int, pattern: int) -> bytes:
    """Encodes an integer in as many bytes as necessary, and sometimes with redundant ones (section 5.1)."""
    encoded = integer(value, bits, pattern)
    if len(encoded) == 1 or chance.random() < 0.95:
        return encoded
    return encoded[:-1] + bytes([encoded[-1] | 0x80]) + b"\x80" * chance.randrange(5) + b"\0"


def field_of(chance: random.Random) -> bytes:
    """Returns one representation (section 6); an index may refer to an entry that does not exist."""
    kind = chance.random()
    if kind < 0.35:
        return index(chance, chance.choice((chance.randrange(1, 62), chance.randrange(62, 66))), 7, 0x80)
    bits, pattern = chance.choice(_LITERALS)
    if kind < 0.6:
        return index(chance, chance.randrange(1, 65), bits, pattern) + text(chance, chance.choice(_VALUES))
    return bytes([pattern]) + text(chance, chance.choice(_NAMES)) + text(chance, chance.choice(_VALUES))


def block_of(chance: random.Random) -> bytes:
    """Returns a block that is mostly valid, with up to two damaged places."""
    changes = chance.choice((0,) * 9 + (1, 2, 3))
    block = b"".join(integer(chance.choice(_TABLE_SIZES), 5, 0x20) for _ in range(changes))
    block += b"".join(field_of(chance) for _ in range(chance.randrange(6)))
    block += integer(100, 5, 0x20) if chance.random() < 0.02 else b""  # after fields
    for _ in range(chance.choice((0,) * 8 + (1, 2))):
        at = chance.randrange(len(block) + 1)
        block = block[:at] + chance.choice((*_SPOILS, chance.randbytes(1))) + block[at + chance.randrange(3) :]
    return block


def reason(block: bytes, own: Fields | None, other: Fields | None) -> str:
    """Returns why the two decoders may differ about a block, or an empty string if they may not."""
    if own is not None or other is None:
        return ""
    if _LONG_INTEGER.search(block):
        return "hpack takes integers of any length; section 5.1 has decoders set a limit"
    if _changes(block) > _MOST_CHANGES:
        return "hpack takes any number of changes of the table's size; section 4.2 has encoders say two at most"
    return ""


def _changes(block: bytes) -> int:
    """Returns the number of table size changes at the beginning of the block."""
    found = _CHANGES.match(block)
    return len(_CHANGE.findall(found[0])) if found else 0


def test_generated_and_damaged_blocks_are_decoded_like_by_hpack(program: Path) -> None:
    chance = random.Random(SEED)
    connections = [[block_of(chance) for _ in range(chance.randrange(1, 6))] for _ in range(CONNECTIONS)]
    seen, wrong = Counter[str](), []
    for blocks, own in zip(connections, decode_with_plane(program, connections), strict=True):
        other = decode_with_hpack(blocks)
        at = next((at for at, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), None)
        outcome = "refused" if None in own else "decoded"
        named = outcome if at is None else reason(blocks[at], own[at], other[at])
        seen[named] += 1
        if not named:
            wrong.append((blocks, own, other))
    assert not wrong, wrong[:3]
    assert len(seen) == 4  # includes the two reasons
    assert min(seen["decoded"], seen["refused"]) > CONNECTIONS // 10
