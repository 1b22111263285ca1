from __future__ import annotations

import ctypes
import random
import struct
from pathlib import Path

import pytest

from service.compiler.lowering.link import link
from service.core.builds.build import BuildCanceled
from service.core.errors import BuildFailed
from service.core.target import Target, detect_host, parse_target
from tests.support.assembly import assemble, data, function, pointer

X86, ARM, RISCV = map(parse_target, ("x86-64-v3", "aarch64", "riscv64+v"))
MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}

PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
PF_X = 1
DT_NEEDED, DT_SONAME, DT_RUNPATH, DT_RPATH, DT_FLAGS, DT_TEXTREL = 1, 14, 29, 15, 30, 22
DF_BIND_NOW = 8
NOTE_BUILD_ID = struct.pack("<I", 3) + b"GNU\0"


def make_object(directory: Path, architecture: str, content: bytes = b"constants", name: str = "data") -> Path:
    """Assembles an object that contains `content` as the symbol `octet_<name>`."""
    return assemble(directory, data(name, content), architecture, f"{name}.o")


def program_headers(data: bytes) -> dict[int, tuple[int, int, int]]:
    """Maps the type of each segment of an ELF64 file to (flags, offset, size)."""
    start, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    headers = (struct.unpack_from("<IIQQQQ", data, start + size * n) for n in range(count))
    return {kind: (flags, offset, length) for kind, flags, offset, _, _, length in headers}


def dynamic_entries(data: bytes) -> dict[int, int]:
    _, offset, length = program_headers(data)[PT_DYNAMIC]
    return dict(struct.iter_unpack("<QQ", data[offset : offset + length]))


@pytest.mark.parametrize("target", [X86, ARM, RISCV], ids=str)
def test_it_links_for_every_architecture(tmp_path: Path, target: Target) -> None:
    link([make_object(tmp_path, target.architecture)], tmp_path / "lib.so", target)
    data = (tmp_path / "lib.so").read_bytes()
    kind, machine = struct.unpack_from("<HH", data, 16)
    assert (kind, machine) == (3, MACHINES[target.architecture])  # 3: shared object


def test_a_linked_library_can_be_loaded(tmp_path: Path) -> None:
    host = detect_host().target
    objects = [
        make_object(tmp_path, host.architecture, b"one", "a"),
        make_object(tmp_path, host.architecture, b"2", "b"),
    ]
    link(objects, tmp_path / "lib.so", host)
    library = ctypes.CDLL(str(tmp_path / "lib.so"))
    assert bytes((ctypes.c_char * 3).in_dll(library, "octet_a")) == b"one"
    assert bytes((ctypes.c_char * 1).in_dll(library, "octet_b")) == b"2"


@pytest.mark.parametrize("target", [X86, ARM, RISCV], ids=str)
def test_equal_objects_give_equal_bytes_in_every_directory(tmp_path: Path, target: Target) -> None:
    written = []
    for directory in (tmp_path / "here", tmp_path / "somewhere" / "else"):
        directory.mkdir(parents=True)
        link([make_object(directory, target.architecture)], directory / "lib.so", target)
        written.append((directory / "lib.so").read_bytes())
    assert written[0] == written[1]
    assert str(tmp_path).encode() not in written[0]


def test_the_library_needs_no_other_library_and_is_hardened(tmp_path: Path) -> None:
    link([make_object(tmp_path, "x86_64")], tmp_path / "lib.so", X86)
    data = (tmp_path / "lib.so").read_bytes()
    dynamic, segments = dynamic_entries(data), program_headers(data)
    assert not dynamic.keys() & {DT_NEEDED, DT_SONAME, DT_RUNPATH, DT_RPATH, DT_TEXTREL}
    assert dynamic[DT_FLAGS] & DF_BIND_NOW
    assert not segments[PT_GNU_STACK][0] & PF_X
    assert PT_GNU_RELRO in segments
    assert NOTE_BUILD_ID not in data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "object.o cannot be linked: it is not an ELF object"),
        (b"INPUT(/etc/passwd)", "object.o cannot be linked: it is not an ELF object"),
        (b"!<arch>\n" + bytes(100), "object.o cannot be linked: it is not an ELF object"),
        (b"\x7fELF\x01\x01" + bytes(100), "object.o cannot be linked: it is not an ELF object"),  # 32 bits
        (b"\x7fELF\x02\x01\x01".ljust(64, b"\0"), "its header is damaged"),
    ],
)
def test_a_file_that_is_not_an_object_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "object.o").write_bytes(data)
    with pytest.raises(BuildFailed, match=message) as caught:
        link([tmp_path / "object.o"], tmp_path / "lib.so", X86)
    assert caught.value.stage == "link"
    assert [path.name for path in tmp_path.iterdir()] == ["object.o"]


def test_an_object_for_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="not code for x86_64"):
        link([make_object(tmp_path, "aarch64")], tmp_path / "lib.so", X86)


def test_an_object_with_a_constructor_is_refused(tmp_path: Path) -> None:
    """A constructor would run when the library is loaded."""
    text = function() + pointer(".init_array", kind="%init_array")
    with pytest.raises(BuildFailed, match=r"code\.o cannot be linked: it has a section \.init_array") as caught:
        link([assemble(tmp_path, text)], tmp_path / "lib.so", X86)
    assert caught.value.stage == "link"
    assert not (tmp_path / "lib.so").exists()


def test_the_linked_library_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.compiler.lowering.link.check_object", lambda *arguments: None)
    text = function() + pointer(".init_array", kind="%init_array")
    with pytest.raises(BuildFailed, match="the linked library is not valid: it has initializers"):
        link([assemble(tmp_path, text)], tmp_path / "lib.so", X86)
    assert not (tmp_path / "lib.so").exists()


def test_a_link_to_an_object_is_refused(tmp_path: Path) -> None:
    make_object(tmp_path, "x86_64")
    (tmp_path / "link.o").symlink_to(tmp_path / "data.o")
    with pytest.raises(BuildFailed, match=r"link\.o is not a regular file"):
        link([tmp_path / "link.o"], tmp_path / "lib.so", X86)


def test_the_error_contains_the_linkers_message(tmp_path: Path) -> None:
    made = make_object(tmp_path, "x86_64")
    with pytest.raises(BuildFailed, match="duplicate symbol: octet_data"):
        link([made, made], tmp_path / "lib.so", X86)


def test_a_failure_leaves_the_old_output(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_text("old")
    made = make_object(tmp_path, "x86_64")
    with pytest.raises(BuildFailed):
        link([made, made], tmp_path / "lib.so", X86)
    assert (tmp_path / "lib.so").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.o", "lib.so"]


def test_it_can_be_canceled(tmp_path: Path) -> None:
    def poll() -> None:
        raise BuildCanceled

    with pytest.raises(BuildCanceled):
        link([make_object(tmp_path, "x86_64")], tmp_path / "lib.so", X86, poll=poll)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.o"]


def test_damaged_objects_do_no_harm(tmp_path: Path) -> None:
    whole = make_object(tmp_path, "x86_64").read_bytes()
    chance = random.Random(0)
    failed = 0
    for _ in range(12):
        damaged = bytearray(whole)
        for _ in range(8):
            damaged[chance.randrange(20, len(damaged))] = chance.randrange(256)
        (tmp_path / "damaged.o").write_bytes(damaged)
        try:
            link([tmp_path / "damaged.o"], tmp_path / "lib.so", X86)
        except BuildFailed:
            failed += 1
    assert failed  # otherwise the damage had no effect
