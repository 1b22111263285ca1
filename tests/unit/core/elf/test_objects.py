"""Tests of the check of object files. An assembler writes each case, and a linker would accept it."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.elf import ElfError, check_object, data_object
from tests.support.assembly import assemble, function, pointer

ARCHITECTURES = ("x86_64", "aarch64", "riscv64")
PLAIN = function()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN + function("octet_g") + function("__truncsfhf2"),
        PLAIN + ".weak __TVMBackendParallelLaunch\n.bss\n.p2align 3\n__TVMBackendParallelLaunch: .zero 8\n",
        PLAIN + ".data\n .quad expf\n .quad memcpy\n",
    ],
)
def test_functions_data_and_known_imports_are_allowed(tmp_path: Path, architecture: str, text: str) -> None:
    check_object(assemble(tmp_path, text, architecture).read_bytes(), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (pointer(".init_array", kind="%init_array"), r"a section \.init_array"),
        (pointer(".init_array.00001", kind="%init_array"), r"a section \.init_array\.00001"),
        (pointer(".fini_array", kind="%fini_array"), r"a section \.fini_array"),
        (pointer(".preinit_array", kind="%preinit_array"), r"a section \.preinit_array"),
        (pointer(".ctors"), r"a section \.ctors"),
        (pointer(".dtors"), r"a section \.dtors"),
        (pointer(".text.f", kind="%init_array"), r"a section \.text\.f of type 0xe"),
        ('.section .init,"ax",%progbits\n ret\n', r"a section \.init "),
        ('.section .fini,"ax",%progbits\n ret\n', r"a section \.fini "),
        ('.section .text.w,"awx",%progbits\n ret\n', r"a section \.text\.w of type 0x1 and flags 0x7"),
        ('.section .rodata.x,"ax",%progbits\n ret\n', r"a section \.rodata\.x"),
        ('.section .text.g,"axG",%progbits,g,comdat\n ret\n', r"a section \.group"),
        ('.section .tbss,"awT",%nobits\n .zero 8\n', r"a section \.tbss"),
        ('.section .interp,"a",%progbits\n .asciz "/bin/sh"\n', r"a section \.interp"),
        ('.section .deplibs,"MS",@llvm_dependent_libraries,1\n .asciz "m"\n', r"a section \.deplibs"),
        ('.section .linker-options,"e",@llvm_linker_options\n .asciz "-init"\n .asciz "f"\n', r"\.linker-options"),
        ('.section .gnu.warning.f,"",%progbits\n .asciz "x"\n', r"a section \.gnu\.warning\.f"),
        ('.section .odd,"a",%progbits\n .byte 1\n', r"a section \.odd"),
        (function("octet_g", kind="gnu_indirect_function"), "octet_g is an indirect function"),
        (".comm octet_c,8,8\n", "a section COMMON"),
        (".data\n .quad system\n", "it needs system"),
        (".data\n .quad __ehdr_start\n", "it needs __ehdr_start"),
        (function("malloc"), "it defines malloc"),
        (function("_init"), "it defines _init"),
        (".hidden _fini\n" + function("_fini"), "it defines _fini"),
        (".globl octet_at\n.set octet_at, 64\n", "octet_at is in none of its sections"),
    ],
)
def test_anything_that_makes_the_linker_or_loader_act_is_refused(
    tmp_path: Path, architecture: str, text: str, reason: str
) -> None:
    data = assemble(tmp_path, PLAIN + text, architecture).read_bytes()
    with pytest.raises(ElfError, match=reason):
        check_object(data, architecture)


def test_a_kernel_may_define_its_function(tmp_path: Path) -> None:
    shared = function("__truncsfhf2") + function("__extendhfsf2")
    data = assemble(tmp_path, function("octet_conv") + shared).read_bytes()
    check_object(data, "x86_64", "octet_conv")


@pytest.mark.parametrize(
    "text", [function("octet_g"), function("octet_conv") + function("octet_g"), function("__extendhfsf2")]
)
def test_a_kernel_that_defines_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    data = assemble(tmp_path, text).read_bytes()
    with pytest.raises(ElfError, match="instead of octet_conv"):
        check_object(data, "x86_64", "octet_conv")


def test_code_for_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="not code for x86_64"):
        check_object(assemble(tmp_path, PLAIN, "aarch64").read_bytes(), "x86_64")


@pytest.mark.parametrize("variables", [["octet_one"], ["octet_one.sm_80", "octet_one.sm_90"], ["octet_one.sm_100"]])
def test_a_kernel_may_define_its_code_for_gpus(variables: list[str]) -> None:
    made = data_object("octet_one", dict.fromkeys(variables, b"code"), "x86_64")
    check_object(made, "x86_64", defines="octet_one")


@pytest.mark.parametrize(
    "variable", ["octet_two", "octet_two.sm_80", "octet_one.sm_", "octet_one.sm_80.sm_90", ".sm_80"]
)
def test_the_name_of_another_kernel_is_refused(variable: str) -> None:
    made = data_object("octet_one", {variable: b"code", "octet_one.sm_80": b"code"}, "x86_64")
    with pytest.raises(ElfError, match=r"instead of octet_one|it defines \.sm_80"):
        check_object(made, "x86_64", defines="octet_one")
