"""Interprets a seccomp filter as the kernel does, so that the filters of both architectures can be tested on either."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from service.compiler.sandbox import bpf


def run_filter(program: bpf.Program, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Returns the result (SECCOMP_RET_*) of `program` for one system call. `arguments` are 64-bit registers."""
    registers = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFF_FFFF, architecture, 0, *(r & (1 << 64) - 1 for r in registers))
    at, accumulator = 0, 0
    while True:
        code, k, jt, jf = program[at]
        at += 1
        if code == bpf.LD_ABS:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif code == bpf.AND:
            accumulator &= k
        elif code == bpf.JEQ:
            at += jt if accumulator == k else jf
        elif code == bpf.JGE:
            at += jt if accumulator >= k else jf
        elif code == bpf.RET:
            return k
        else:
            raise AssertionError(f"instruction {code:#x} is not one that the assembler of filters writes")
