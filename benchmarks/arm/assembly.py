"""The innermost loops of a library for aarch64, as LLVM disassembles them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OBJDUMP = "llvm-objdump-19"

# Products of one instruction on vectors of 128 bits.
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
    """One instruction; `operands` as they are printed."""

    address: int
    name: str
    operands: str

    @property
    def target(self) -> int | None:
        """Where it may jump to."""
        found = _PLACE.search(self.operands) if _BRANCHES.fullmatch(self.name) else None
        return int(found[1], 16) if found else None

    @property
    def is_product(self) -> bool:
        """Whether it multiplies and adds: those of half a vector, or to 64 bits, are not counted."""
        return self.name in PRODUCTS and (PRODUCTS[self.name] > 4 or ".4s" in self.operands)

    def text(self) -> str:
        """As an assembler takes it; places become the loop's beginning."""
        return f"{self.name} {_PLACE.sub(_LABEL, self.operands)}"


@dataclass(frozen=True)
class Loop:
    """A loop without another inside, from the place that it jumps back to."""

    function: str
    body: tuple[Instruction, ...]

    @property
    def products(self) -> Counter[str]:
        """Instructions that multiply, by name."""
        return Counter(it.name for it in self.body if it.is_product)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one pass."""
        return sum(PRODUCTS[name] * count for name, count in self.products.items())

    @property
    def loads(self) -> int:
        """Instructions that load vectors."""
        return sum(it.name.startswith("ld") and it.operands.lstrip("{ ")[:1] in "qvds" for it in self.body)

    @property
    def spills(self) -> int:
        """Accesses of vectors on the stack."""
        return sum(
            it.name in ("ldr", "str", "ldp", "stp") and "[sp" in it.operands and it.operands[0] == "q"
            for it in self.body
        )

    def text(self) -> str:
        return "\n".join([f"{_LABEL}:", *(it.text() for it in self.body), ""])


def loops(library: Path) -> Iterator[Loop]:
    """Those that multiply, function by function.

    Raises:
        OSError: there is no disassembler.
        subprocess.CalledProcessError: it is no library for aarch64.
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
    places = {it.address: place for place, it in enumerate(body)}
    jumps = [(places[it.target], place) for place, it in enumerate(body) if it.target in places]
    latest = -1  # where the last loop begins that has ended: one that begins before it holds it
    for first, last in sorted((jump for jump in jumps if jump[0] <= jump[1]), key=lambda jump: (jump[1], -jump[0])):
        if first > latest:
            latest = first
            loop = Loop(function, tuple(body[first : last + 1]))
            if loop.macs:
                yield loop
