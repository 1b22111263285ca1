"""The settings of the compiler for each target: TVM's target, and the operand types of its instructions.

A target consists of data: one entry here. If it has hand-written kernels, they are in a folder of `kernels/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.core.target import TARGETS, Target


@dataclass(frozen=True)
class OperandTypes:
    """The storage types of the two operands of a convolution or dense layer."""

    data: str
    weight: str


@dataclass(frozen=True)
class CodegenTarget:
    """The compiler's settings for a target.

    Attributes:
        llvm: TVM's target description as a dict (`tvm.target.Target` no longer accepts flag strings).
        operands: the types to which the pass `legalize` converts 8-bit operands.
        vector_bytes: the width of a vector register.
        vector_registers: the number of vector registers.
        cards: the compute capabilities of the NVIDIA GPUs to compile for, such as `sm_80`, in ascending order. The
            other attributes then describe the host. Empty for a CPU target.
    """

    llvm: Mapping[str, Any]
    operands: OperandTypes
    vector_bytes: int
    vector_registers: int
    cards: tuple[str, ...] = ()


_U8_S8 = OperandTypes("uint8", "int8")
_S8_S8 = OperandTypes("int8", "int8")
_S16_S16 = OperandTypes("int16", "int16")

_X86_V3 = ("+avx", "+avx2", "+bmi", "+bmi2", "+f16c", "+fma", "+lzcnt", "+movbe")
_X86_V4 = (*_X86_V3, "+avx512f", "+avx512bw", "+avx512cd", "+avx512dq", "+avx512vl")


def _llvm(triple: str, cpu: str, features: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": "llvm", "mtriple": triple, "mcpu": cpu, "mattr": list(features), "num-cores": 1}


def _x86(features: tuple[str, ...], operands: OperandTypes, vector_bytes: int, registers: int) -> CodegenTarget:
    return CodegenTarget(_llvm("x86_64-linux-gnu", "x86-64", features), operands, vector_bytes, registers)


def _arm(features: tuple[str, ...], operands: OperandTypes) -> CodegenTarget:
    return CodegenTarget(_llvm("aarch64-linux-gnu", "generic", features), operands, 16, 32)


def _riscv(features: tuple[str, ...]) -> CodegenTarget:
    llvm = _llvm("riscv64-linux-gnu", "generic-rv64", features)
    return CodegenTarget({**llvm, "mabi": "lp64d"}, _S16_S16, 16, 32)


def _cuda(target: Target) -> CodegenTarget:
    return replace(_x86(_X86_V3, _U8_S8, 32, 16), cards=tuple(sorted(target.features)))


_CODEGEN: dict[str, CodegenTarget] = {
    "x86-64-v3": _x86(_X86_V3, _S16_S16, 32, 16),
    "x86-64-v3+avxvnni": _x86((*_X86_V3, "+avxvnni"), _U8_S8, 32, 16),
    "x86-64-v4": _x86(_X86_V4, _S16_S16, 64, 32),
    "x86-64-v4+vnni": _x86((*_X86_V4, "+avx512vnni"), _U8_S8, 64, 32),
    "x86-64-v4+vnni+bf16": _x86((*_X86_V4, "+avx512vnni", "+avx512bf16"), _U8_S8, 64, 32),
    "x86-64-v4+amx": _x86((*_X86_V4, "+avx512vnni", "+amx-tile", "+amx-int8"), _U8_S8, 64, 32),
    "aarch64": _arm(("+neon",), _S16_S16),
    "aarch64+dotprod": _arm(("+neon", "+v8.2a", "+dotprod"), _S8_S8),
    "aarch64+i8mm": _arm(("+neon", "+v8.2a", "+dotprod", "+i8mm"), _S8_S8),
    "riscv64+v": _riscv(("+m", "+a", "+f", "+d", "+c", "+v")),
    **{target.name: _cuda(target) for target in TARGETS if target.device == "cuda"},
}


def codegen_target(target: Target) -> CodegenTarget:
    """Returns the settings for `target`. Every target of `core.target.TARGETS` has an entry."""
    return _CODEGEN[target.name]
