"""Counts the instructions in the hot loops of ARM kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

from service.compiler.kernels.kernel import Kernel
from service.compiler.targets import codegen_target
from service.core.target import parse_target

import tvm  # isort: skip

_PRODUCTS = re.compile(r"[us]*dot|smlal2?|smull2?|usmmla")


@dataclass(frozen=True)
class Loop:
    """The numbers of instructions in an innermost loop, by type.

    Attributes:
        products: instructions that multiply integers.
        loads: loads of operands and constants.
        spills: loads from the stack and stores to it.
        vectors: other instructions on vectors.
        scalars: instructions for counters, addresses and branches.
    """

    products: int
    loads: int
    spills: int
    vectors: int
    scalars: int


def hot_loop(target: str, kernel: Kernel) -> Loop:
    """Compiles a kernel. Of its loops, returns the one with the most products."""
    module = tvm.IRModule({"kernel": kernel.tensor_program.with_attr("global_symbol", "kernel")})
    llvm = tvm.target.Target(dict(codegen_target(parse_target(target)).llvm))
    with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_storage_rewrite": True}):
        text = tvm.tirx.build(module, target=llvm).inspect_source("asm")
    lines = [line.strip() for line in text.splitlines()]
    labels = {line.split(":")[0]: number for number, line in enumerate(lines) if re.match(r"\.LBB\d+_\d+:", line)}
    spans = []
    for number, line in enumerate(lines):
        branch = re.match(r"(?:b\.?\w*|cbn?z|tbn?z)\s.*(\.LBB\d+_\d+)$", line)
        if branch and labels[branch[1]] < number:
            spans.append((labels[branch[1]], number + 1))
    inner = [
        one for one in spans if not any(one != other and one[0] <= other[0] and other[1] <= one[1] for other in spans)
    ]
    return max((_counted(lines[slice(*span)]) for span in inner), key=lambda loop: loop.products)


def _counted(lines: list[str]) -> Loop:
    counts = dict.fromkeys(("products", "loads", "spills", "vectors", "scalars"), 0)
    for line in lines:
        if not re.match(r"[a-z]", line):  # labels, directives, comments
            continue
        name, _, operands = line.partition("\t")
        if "[sp" in operands:
            kind = "spills"
        elif name.startswith(("ld", "prfm")):
            kind = "loads"
        elif _PRODUCTS.fullmatch(name):
            kind = "products"
        else:
            kind = "vectors" if re.match(r"[vqdsbh]\d", operands) else "scalars"
        counts[kind] += 1
    return Loop(**counts)
