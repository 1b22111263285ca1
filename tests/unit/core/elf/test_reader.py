"""Tests with damaged libraries: the check always ends with a decision, and a library that it accepts can be loaded."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.core.elf import ElfError, check_library, check_object
from service.core.target import detect_host
from tests.support.assembly import assemble, data, function, linked

_WORDS = (0, 1, 7, 8, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_HEADER, _PROGRAM, _DYNAMIC_ENTRY = 64, 56, 16
_LOAD, _DYNAMIC = 1, 2

_TEXT = (
    function() + function("octet_g") + data("d", b"constants")
    + ".data\n.p2align 3\n .quad expf\n .quad memcpy\n .quad local\nlocal: .quad 1\n"
    + ".weak __TVMBackendParallelLaunch\n.bss\n.p2align 3\n__TVMBackendParallelLaunch: .zero 8\n"
)  # fmt: skip
_OPTIONS = ("-z", "now", "-z", "separate-code", "--hash-style=gnu", "--strip-debug")

# Loads every library of a folder, looks up an existing and a missing symbol in each, and prints "done" at the end.
_LOADER = """
import ctypes, sys
from pathlib import Path
for path in sorted(Path(sys.argv[1]).iterdir()):
    print(path.name, file=sys.stderr, flush=True)
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        continue
    for name in ("octet_f", "octet_absent"):
        try:
            getattr(library, name)
        except AttributeError:
            pass
print("done")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a library for this machine's architecture."""
    architecture = detect_host().architecture
    return linked(tmp_path_factory.mktemp("library"), _TEXT, architecture, *_OPTIONS).read_bytes()


def _places(whole: bytes) -> Iterator[tuple[int, int]]:
    """Yields the offset and size of each table of a library: headers, dynamic section, and the tables it points to."""
    yield 0, _HEADER
    (count,) = struct.unpack_from("<H", whole, 56)
    yield _HEADER, count * _PROGRAM
    first_read_only = struct.unpack_from("<Q", whole, _HEADER + _PROGRAM + 32)[0]
    yield _HEADER + count * _PROGRAM, min(first_read_only, 1 << 10) - (_HEADER + count * _PROGRAM)
    for number in range(count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", whole, _HEADER + number * _PROGRAM)
        if kind == _DYNAMIC:
            yield offset, size


def _damaged(whole: bytes, count: int, chance: random.Random) -> Iterator[bytes]:
    positions = list(_places(whole))
    for _ in range(count):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            offset, size = chance.choice(positions)
            at = offset + chance.randrange(max(1, size - 8)) // 4 * 4
            value = chance.choice((*_WORDS, chance.getrandbits(32), chance.randrange(len(whole))))
            struct.pack_into("<I", changed, at, value)
        yield bytes(changed)


def test_every_accepted_library_can_be_loaded(tmp_path: Path, library: bytes) -> None:
    architecture, refused = detect_host().architecture, 0
    (tmp_path / "whole.so").write_bytes(library)
    for number, changed in enumerate(_damaged(library, 6000, random.Random(0))):
        try:
            check_library(changed, architecture)
        except ElfError:
            refused += 1
        else:
            (tmp_path / f"{number}.so").write_bytes(changed)
    # The check must refuse some files and accept others. The process below loads those that were accepted.
    assert 3000 < refused < 5990
    done = subprocess.run([sys.executable, "-c", _LOADER, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", f"status {done.returncode} at {done.stderr.splitlines()[-1]}"


def test_a_truncated_library_is_refused(library: bytes) -> None:
    for size in range(0, len(library), 8):
        with pytest.raises(ElfError):
            check_library(library[:size], detect_host().architecture)


def test_damaged_objects_are_refused_or_accepted(tmp_path: Path) -> None:
    whole, chance = assemble(tmp_path, _TEXT).read_bytes(), random.Random(1)
    refused = 0
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(4):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            check_object(bytes(changed), "x86_64")
        except ElfError:
            refused += 1
    assert refused > 1000


def _with_dynamic(whole: bytes, tag: int, value: int) -> bytes:
    """Returns `whole` with another value of the dynamic entry `tag`."""
    changed = bytearray(whole)
    offset, size = list(_places(whole))[-1]
    for at in range(offset, offset + size, _DYNAMIC_ENTRY):
        if struct.unpack_from("<Q", whole, at)[0] == tag:
            struct.pack_into("<Q", changed, at + 8, value)
            return bytes(changed)
    raise AssertionError(f"no entry {tag:#x}")


def _relocations(whole: bytes) -> int:
    """Returns the file offset of the relocations. It equals their address, because they are in the first segment."""
    offset, size = list(_places(whole))[-1]
    entries = dict(struct.iter_unpack("<QQ", whole[offset : offset + size]))
    return int(entries[7])


def test_a_relocation_outside_the_librarys_data_is_refused(library: bytes) -> None:
    changed = bytearray(library)
    for target in (0, 0x1000, 1 << 40, (1 << 64) - 4096):
        struct.pack_into("<Q", changed, _relocations(library), target)
        with pytest.raises(ElfError, match="which is not its data"):
            check_library(bytes(changed), detect_host().architecture)


def test_a_wrong_count_of_relative_relocations_is_refused(library: bytes) -> None:
    for count in (2, 1000):  # the library has one; relocations after it would be treated as relative
        with pytest.raises(ElfError, match="relocation"):
            check_library(_with_dynamic(library, 0x6FFFFFF9, count), detect_host().architecture)


def test_overlapping_segments_are_refused(library: bytes) -> None:
    changed = bytearray(library)
    loads = [
        _HEADER + number * _PROGRAM
        for number in range(struct.unpack_from("<H", library, 56)[0])
        if struct.unpack_from("<I", library, _HEADER + number * _PROGRAM)[0] == _LOAD
    ]
    struct.pack_into("<Q", changed, loads[0] + 40, 0x10000000)  # the size in memory, but not in the file
    with pytest.raises(ElfError, match="a segment overlaps another"):
        check_library(bytes(changed), detect_host().architecture)


def test_an_unchanged_library_is_loaded(tmp_path: Path, library: bytes) -> None:
    check_library(library, detect_host().architecture)
    (tmp_path / "library.so").write_bytes(library)
    assert ctypes.CDLL(str(tmp_path / "library.so")).octet_f is not None
