"""Analyzes the machine code that NVRTC generates for a kernel: its instructions, its loops, and its resource usage.

It uses NVIDIA's tools from their wheels (`nvidia-cuda-nvdisasm`, `nvidia-cuda-cuobjdump`). They disassemble code for
capabilities from 7.5 on. For older ones, only the resource usage is available.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T\d]+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_LABEL = re.compile(r"\s*(\.L_x?_?\w+):")
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
# Loads and stores of local memory, which contains values for which there are not enough registers.
SPILLS = ("LDL", "STL")


@dataclass(frozen=True)
class Instruction:
    """One instruction, such as `IDP.4A.U8.S8` with the operands `R9, R2, R4, R9`."""

    address: int
    opcode: str
    operands: str
    predicate: str | None


@dataclass(frozen=True)
class Usage:
    """The resource usage of a kernel.

    `registers`, `stack_bytes` and `local_bytes` are per thread. `shared_bytes` is the static shared memory of a block,
    including the 1024 bytes that GPUs of capability 9.0 reserve.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int
    local_bytes: int


class DeviceCode:
    """The machine code of one kernel, from its cubin."""

    def __init__(self, cubin: bytes) -> None:
        self._cubin = cubin

    @cached_property
    def usage(self) -> Usage:
        found = _USAGE.findall(_run_tool("cuobjdump", self._cubin, "--dump-resource-usage"))
        assert len(found) == 1, f"a cubin of the functions {[each[0] for each in found]}"
        return Usage(*map(int, found[0][1:]))

    @cached_property
    def instructions(self) -> Sequence[Instruction]:
        return tuple(line for line in self._lines if isinstance(line, Instruction))

    @cached_property
    def loops(self) -> Sequence[Sequence[Instruction]]:
        """The loops. Each backward branch ends one: it contains the instructions from the branch's target to the
        branch.
        """
        positions: dict[str, int] = {}
        at = 0
        bodies = []
        for line in self._lines:
            if isinstance(line, str):
                positions[line] = at
                continue
            target = re.search(r"`\((\.L\w+)\)", line.operands)
            at += 1
            if line.opcode.startswith("BRA") and target and target[1] in positions:
                bodies.append(self.instructions[positions[target[1]] : at])
        return tuple(body for body in bodies if len(body) > 1)  # a kernel ends with a branch to itself

    @property
    def innermost(self) -> Sequence[Sequence[Instruction]]:
        """The loops that contain no other loop."""
        spans = [(body[0].address, body[-1].address) for body in self.loops]
        inner = [
            not any(other != span and span[0] <= other[0] and other[1] <= span[1] for other in spans) for span in spans
        ]
        return tuple(body for body, is_inner in zip(self.loops, inner, strict=True) if is_inner)

    def hottest(self, *opcodes: str) -> Sequence[Instruction]:
        """Returns the loop that contains the most instructions with these opcodes. If loops are nested, it is the
        innermost one.
        """
        assert self.loops, "the code has no loop"
        return max(self.loops, key=lambda body: (count(body, *opcodes), -len(body)))

    @cached_property
    def _lines(self) -> Sequence[Instruction | str]:
        """The instructions, each with its labels before it."""
        return tuple(_read(_run_tool("nvdisasm", self._cubin, "--print-code")))


def count(instructions: Sequence[Instruction], *opcodes: str) -> int:
    """Returns the number of instructions whose opcode is one of `opcodes`, with or without suffixes after a dot."""
    return sum(any(f"{each.opcode}.".startswith(f"{opcode}.") for opcode in opcodes) for each in instructions)


def _read(text: str) -> Iterator[Instruction | str]:
    for line in text.splitlines():
        if label := _LABEL.match(line):
            yield label[1]
        elif found := _LINE.match(line):
            yield Instruction(int(found[1], 16), found[3], found[4].strip(), found[2])


def _run_tool(tool: str, cubin: bytes, option: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_tool(tool)), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def _tool(name: str) -> Path:
    """Returns the path of a tool in the package `nvidia`, which has a folder for each version of the toolkit."""
    spec = importlib.util.find_spec("nvidia")
    positions = [] if spec is None else list(spec.submodule_search_locations or [])
    found = [path for position in positions for path in Path(position).glob(f"*/bin/{name}")]
    assert found, f"the wheel nvidia-cuda-{name} is not installed"
    return found[0]
