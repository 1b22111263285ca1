"""Documented deviations: operators of which a mode's formula is not what the mode's runtime computes, by mode.

A build may differ from its reference by what is listed here, and by no more (`core.agreement.decide`). An entry needs
the reason why Octet does not compute the same, and a bound in steps of the operator's output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tvm

from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.numerics.saturation import saturating_layers
from service.core.agreement import Deviation
from service.core.numerics import FBGEMM, TORCH_X86


@dataclass(frozen=True)
class Documented:
    """An entry of the table.

    Attributes:
        layers: the number of operators of a model that the deviation is about.
    """

    deviation: Deviation
    layers: Callable[[tvm.IRModule, Mode], int]


_SATURATION = Documented(
    Deviation(
        "conv2d",
        "FBGEMM's depthwise kernel saturates sums of two products at 16 bits beyond 7-bit activations; Octet does not",
        bound_steps=None,
    ),
    saturating_layers,
)

# Numerics mode -> what its runtime is known to compute otherwise.
DEVIATIONS: Mapping[str, tuple[Documented, ...]] = {FBGEMM: (_SATURATION,), TORCH_X86: (_SATURATION,)}


def deviations_of(module: tvm.IRModule, mode: Mode) -> list[Deviation]:
    """The documented deviations that `module` meets, each with its number of layers."""
    counted = ((each.deviation, each.layers(module, mode)) for each in DEVIATIONS.get(mode.name, ()))
    return [deviation.of_layers(layers) for deviation, layers in counted if layers]
