"""The innermost loops of a library for aarch64, as LLVM disassembles them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OBJDUMP = "llvm-objdump-19"

# Multiply-accumulates of one instruction on vectors of 128 bits.
PRODUCTS = {
    **dict.fromkeys(("sdot", "udot", "usdot", "sudot"), 16),
    **dict.fromkeys(("smmla", "ummla", "usmmla"), 32),
    **dict.fromkeys(("smlal", "smlal2", "umlal", "umlal2", "smlsl", "smlsl2"), 4),
}
_SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_PLACE = re.compile(r"0x([0-9a-f]+) <[^>]*>")
_BRANCHES = re.compile(r"b(\.\w+)?|cbn?z|tbn?z")
_LABEL = "loop"


@dataclass(frozen=True)
class Instruction:
    """One instruction; `operands` as LLVM prints them."""

    address: int
    name: str
    operands: str

    @property
    def target(self) -> int | None:
        """Returns the address to which the instruction may jump, if it is a jump."""
        found = _PLACE.search(self.operands) if _BRANCHES.fullmatch(self.name) else None
        return int(found[1], 16) if found else None

    @property
    def is_product(self) -> bool:
        """Returns true if the instruction multiplies and adds. Instructions on half a vector, or that add to 64 bits,
        are not counted.
        """
        return self.name in PRODUCTS and (PRODUCTS[self.name] > 4 or ".4s" in self.operands)

    def text(self) -> str:
        """Returns the instruction as text for an assembler; addresses become the loop's label."""
        return f"{self.name} {_PLACE.sub(_LABEL, self.operands)}"


@dataclass(frozen=True)
class Loop:
    """An innermost loop, from the address to which it jumps back."""

    function: str
    body: tuple[Instruction, ...]

    @property
    def products(self) -> Counter[str]:
        """Counts the instructions that multiply, by name."""
        return Counter(it.name for it in self.body if it.is_product)

    @property
    def macs(self) -> int:
        """Returns the multiply-accumulates of one iteration."""
        return sum(PRODUCTS[name] * count for name, count in self.products.items())

    @property
    def loads(self) -> int:
        """Counts the instructions that load vectors."""
        return sum(it.name.startswith("ld") and it.operands.lstrip("{ ")[:1] in "qvds" for it in self.body)

    @property
    def spills(self) -> int:
        """Counts the accesses to vectors on the stack."""
        return sum(
            it.name in ("ldr", "str", "ldp", "stp") and "[sp" in it.operands and it.operands[0] == "q"
            for it in self.body
        )

    def text(self) -> str:
        return "\n".join([f"{_LABEL}:", *(it.text() for it in self.body), ""])


def loops(library: Path) -> Iterator[Loop]:
    """Yields the loops that multiply, function by function.

    Raises:
        OSError: no disassembler is installed.
        subprocess.CalledProcessError: the file is not a library for aarch64.
    """
    command = [OBJDUMP, "-d", "--no-show-raw-insn", "--mattr=+all", str(library)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        function, body = "", list[Instruction]()
        for line in process.stdout:
            if symbol := _SYMBOL.match(line):
                yield from _innermost(function, body)
                function, body = symbol[1], []
            elif found := _INSTRUCTION.match(line):
                body.append(Instruction(int(found[1], 16), found[2], found[3].partition("//")[0].strip()))
        yield from _innermost(function, body)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _innermost(function: str, body: list[Instruction]) -> Iterator[Loop]:
    positions = {it.address: index for index, it in enumerate(body)}
    jumps = [(positions[it.target], index) for index, it in enumerate(body) if it.target in positions]
    latest = -1  # start of the last loop that has ended: a loop that begins before it contains it
    for first, last in sorted((jump for jump in jumps if jump[0] <= jump[1]), key=lambda jump: (jump[1], -jump[0])):
        if first > latest:
            latest = first
            loop = Loop(function, tuple(body[first : last + 1]))
            if loop.macs:
                yield loop
