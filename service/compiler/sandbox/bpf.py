"""An assembler for the dozen classic BPF instructions of a seccomp filter (linux/bpf_common.h, linux/seccomp.h)."""

from __future__ import annotations

import struct
from typing import NamedTuple

# offsets in struct seccomp_data
SYSCALL = 0
ARCHITECTURE = 4

RET_KILL_PROCESS = 0x8000_0000
RET_ERRNO = 0x0005_0000
RET_ALLOW = 0x7FFF_0000

LD_ABS = 0x20  # A = word at k
AND = 0x54  # A &= k
JEQ = 0x15  # A == k ? jt : jf
JGE = 0x35  # A >= k ? jt : jf
RET = 0x06


class Instruction(NamedTuple):
    """struct sock_filter. `jt` and `jf` count the instructions to skip."""

    code: int
    k: int
    jt: int = 0
    jf: int = 0

    def pack(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.jt, self.jf, self.k)


Program = list[Instruction]


def argument(index: int) -> int:
    """Returns the offset of the low 32 bits of argument `index`. Both architectures are little-endian."""
    return 16 + 8 * index


def load(offset: int) -> Program:
    return [Instruction(LD_ABS, offset)]


def give(action: int) -> Program:
    return [Instruction(RET, action)]


def when_equal(value: int, then: Program) -> Program:
    """If the accumulator A equals `value`, runs `then`, which must end the filter. Otherwise A does not change."""
    return [Instruction(JEQ, value, 0, len(then)), *then]


def when_at_least(value: int, then: Program) -> Program:
    return [Instruction(JGE, value, 0, len(then)), *then]


def when_masked(offset: int, mask: int, value: int, then: Program) -> Program:
    """If (the word at `offset`) & `mask` equals `value`, runs `then`, which must end the filter. Overwrites A."""
    return [*load(offset), Instruction(AND, mask), *when_equal(value, then)]
