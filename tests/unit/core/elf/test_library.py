"""Tests of the check of libraries. LLD links each case, and a dynamic loader would load it."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.elf import ElfError, check_library
from tests.support.assembly import assemble, function, linked, pointer

ARCHITECTURES = ("x86_64", "aarch64", "riscv64")
NOW = ("-z", "now", "-z", "separate-code", "--hash-style=gnu")
PLAIN = function()
# Accesses through the global offset table, so that the library has relocations.
CALLS = PLAIN + ".data\n.globl octet_p\n.p2align 3\noctet_p: .quad expf\n .quad local\nlocal: .quad 1\n"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("text", [PLAIN, CALLS])
def test_code_and_data_are_allowed(tmp_path: Path, architecture: str, text: str) -> None:
    check_library(linked(tmp_path, text, architecture, *NOW).read_bytes(), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (pointer(".init_array", kind="%init_array"), (), "initializers.*DT_INIT_ARRAY"),
        (pointer(".fini_array", kind="%fini_array"), (), "finalizers.*DT_FINI_ARRAY"),
        ("", ("-init=octet_f",), "initializer.*DT_INIT"),
        ("", ("-fini=octet_f",), "finalizer.*DT_FINI"),
        (".hidden _init\n" + function("_init"), (), "initializer.*DT_INIT"),
        ("", ("-rpath=/tmp",), "DT_RUNPATH"),
        ("", ("-rpath=/tmp", "--disable-new-dtags"), "DT_RPATH"),
        ("", ("-soname=libc.so.6",), "an entry 0xe "),
        ("", ("--filter=libx.so",), "DT_FILTER"),
        ("", ("--auxiliary=libx.so",), "DT_AUXILIARY"),
        ("", ("-z", "nodelete"), "an entry 0x6ffffffb"),
        ("", ("-z", "initfirst"), "an entry 0x6ffffffb"),
        ("", ("-z", "interpose"), "an entry 0x6ffffffb"),
        ("", ("-Bsymbolic",), "an entry 0x1e"),
        ("", ("--hash-style=sysv",), "an entry 0x4 "),
        ("", ("-z", "execstack"), "its stack is executable"),
        ('.section .interp,"a",%progbits\n .asciz "/tmp/x"\n', (), "interpreter"),
        ("", ("-z", "nognustack"), "has 0 segments of type 0x6474e551"),
        ('.section .text.w,"awx",%progbits\n ret\n', (), "writable and executable"),
        (".text\n .p2align 3\n .quad expf\n", ("-z", "notext"), "an entry 0x1e of 0xc"),
        ('.section .tdata,"awT",%progbits\n .quad 1\n', (), "thread-local"),
        (".data\n .quad system\n", (), "it needs system"),
        (function("malloc"), (), "it defines malloc"),
        (function("octet_g", kind="gnu_indirect_function"), (), "indirect function"),
        (
            function("resolver", kind="gnu_indirect_function") + ".hidden resolver\n.data\n .quad resolver\n",
            (),
            "indirect function",
        ),
        ('.section .odd,"a",%progbits\n .byte 1\n', (), r"a section \.odd"),
        ('.section .note.x,"a",%note\n .long 0\n .long 0\n .long 1\n', (), "a segment of type 0x4"),
        (
            ".globl __TVMBackendFreeWorkspace\n.section .rodata\n__TVMBackendFreeWorkspace: .quad 1\n",
            (),
            "is not in its data",
        ),
        (".data\n.globl __TVMBackendX\n__TVMBackendX: .quad 1\n", (), "defines __TVMBackendX"),
    ],
)  # fmt: skip
def test_anything_that_makes_the_loader_act_is_refused(
    tmp_path: Path, architecture: str, text: str, options: tuple[str, ...], reason: str
) -> None:
    data = linked(tmp_path, PLAIN + text, architecture, *NOW, *options).read_bytes()
    with pytest.raises(ElfError, match=reason):
        check_library(data, architecture)


def test_a_library_that_needs_another_is_refused(tmp_path: Path) -> None:
    linked(tmp_path, PLAIN, "x86_64", name="other.so")
    data = linked(tmp_path, PLAIN, "x86_64", *NOW, "--no-as-needed", "other.so").read_bytes()
    with pytest.raises(ElfError, match="DT_NEEDED"):
        check_library(data, "x86_64")


def test_versions_of_symbols_are_refused(tmp_path: Path) -> None:
    (tmp_path / "versions").write_text("V1 { global: *; };")
    data = linked(tmp_path, PLAIN, "x86_64", *NOW, "--version-script=versions").read_bytes()
    with pytest.raises(ElfError, match="its dynamic section has an entry 0x6ff"):
        check_library(data, "x86_64")


def test_an_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="not a shared library"):
        check_library(assemble(tmp_path, PLAIN).read_bytes(), "x86_64")


def test_code_for_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="not code for aarch64"):
        check_library(linked(tmp_path, PLAIN, "x86_64", *NOW).read_bytes(), "aarch64")
