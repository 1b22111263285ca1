"""The kernel library of each target that has hand-written kernels."""

from __future__ import annotations

from service.compiler.kernels.arm.isa import ISAS as ARM
from service.compiler.kernels.choices import Choices
from service.compiler.kernels.cuda.gpus import common
from service.compiler.kernels.cuda.library import CudaLibrary
from service.compiler.kernels.group import KernelLibrary
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.riscv.isa import ISAS as RISCV
from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.simd.peak import peak
from service.compiler.kernels.vector.isa import Isa
from service.compiler.kernels.x86.isa import ISAS as X86
from service.compiler.qnn.numerics import Mode
from service.compiler.targets import codegen_target
from service.core.target import Target

ISAS: dict[str, Isa] = {**X86, **ARM, **RISCV}


def library_for(target: Target, mode: Mode, choices: Choices | None = None) -> KernelLibrary | None:
    """Returns the kernels for `target` in `mode`, or None if the target has none and TVM generates all of its code.

    Args:
        choices: chooses the tiles; by default, the cost model's best tile is used.
    """
    gpus = codegen_target(target).cards
    if gpus:
        return CudaLibrary(common(gpus), mode, choices)
    isa = ISAS.get(target.name)
    return None if isa is None else SimdLibrary(isa, mode, choices)


def peak_for(target: Target) -> Kernel | None:
    """Returns the kernel that measures the peak rate of `target`'s instructions, or None if the target has no
    kernels."""
    isa = ISAS.get(target.name)
    return None if isa is None else peak(isa)
