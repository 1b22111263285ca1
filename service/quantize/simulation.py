"""Runs the simulated form of a quantized model (`compiler.qnn.simulate`), and reports how many bits its accumulators
need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm

from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.simulate import simulate as simulated
from service.core.models.arrays import Array


@dataclass(frozen=True)
class Sums:
    """The accumulators of one operator.

    Attributes:
        bits: the smallest width, in two's complement, that can represent all values of the accumulators.
        overflows: the number of values that did not fit the accumulator.
    """

    bits: int
    overflows: int


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation.

    Attributes:
        outputs: the model's outputs.
        sums: name of a value -> the accumulators from which it is computed.
    """

    outputs: list[Array]
    sums: Mapping[str, Sums]


def simulate(module: tvm.IRModule, mode: Mode, inputs: Sequence[Array], bits: int = 32) -> Simulated:
    """Evaluates a quantized model in its simulated form.

    Args:
        module: the module that an importer returns.
        bits: the width of accumulators. A value above `compiler.qnn.simulate.EXACT_BITS` means the model's own width.

    Raises:
        UnsupportedOperator: see `oracle.run`.
    """
    simulation = simulated(module, bits)
    results = oracle.run(simulation.module, mode, inputs)
    outputs = results[: len(results) - len(simulation.sums)]
    extents = zip(simulation.sums, results[len(outputs) :], strict=True)
    return Simulated(outputs, {name: Sums(_bits_of(*extent[:2]), int(extent[2])) for name, extent in extents})


def _bits_of(low: int, high: int) -> int:
    return 1 + max(int(high).bit_length(), int(-low - 1).bit_length() if low < 0 else 0)
