"""Expresses the output stage of convolutions and dense layers as types of `source/output.cuh`, and the arrays that
these read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue, Epilogue
from service.compiler.kernels.cuda.text import TYPES
from service.compiler.kernels.cuda.types import images
from service.compiler.kernels.cuda.types.epilogues import epilogue_code
from service.compiler.kernels.layer import Layer
from service.core.models.arrays import Array


@dataclass(frozen=True)
class OutputCode:
    """The parts of a kernel's code and parameters that belong to its output stage.

    Attributes:
        constants: the bias, then the other arrays that the output stage reads.
        bias: the name of the kernel's parameter for the bias.
        definitions: the text that defines the formula's type.
        statements: declarations of the type `Output`, and of the variable `output` of that type.
        residual: the declaration of the kernel's parameter for the residual, if there is one.
        destination: the declaration of the kernel's parameter for the destination.
        size_bytes: the size of the destination.
    """

    constants: tuple[Array, ...]
    bias: str
    definitions: str
    statements: tuple[str, ...]
    residual: tuple[str, ...]
    destination: str
    size_bytes: int


def output_code(layer: Layer, bias: Array, epilogue: AnyEpilogue, filters: int, first: int) -> OutputCode:
    """Returns the output code of a layer.

    Args:
        bias: the result of `folded_bias`.
        epilogue: an epilogue whose arrays are extended to whole blocks.
        filters: the number of filters rounded up to whole tiles. Arrays are extended to this number.
        first: the number of the kernel's other constants, which come before the constants of the output stage.
    """
    formula = epilogue_code(epilogue, reads_residual=layer.residual is not None)
    constants = [_filled(array, filters) for array in (epilogue.requantization.started(bias), *formula.arrays)]
    names = [f"constant_{first + index}" for index in range(len(constants) + 1)]
    made, destination = formula.made_of(names[1:-1]), layer.destination
    if isinstance(epilogue, Epilogue):
        constants.append(epilogue.parameters)
        type_ = _bytes_type(layer, epilogue, formula.type)
        given = [made, "residual" if layer.residual else "nullptr", names[-1], "destination"]
    else:
        arguments = (TYPES[epilogue.dtype], formula.type, images.places(destination), destination.channels)
        type_ = f"octet::WideOutput<{', '.join(map(str, arguments))}>"
        given = [made, "destination"]
    statements = (f"using Output = {type_};", f"const Output output{{{', '.join(given)}}};")
    residual = ("const octet::u8* __restrict__ residual",) if layer.residual else ()
    written = f"{TYPES[epilogue.dtype]}* __restrict__ destination"
    size = destination.size_bytes * np.dtype(epilogue.dtype).itemsize
    return OutputCode(tuple(constants), names[0], formula.definition, statements, residual, written, size)


def _bytes_type(layer: Layer, epilogue: Epilogue, formula: str) -> str:
    destination, residual = layer.destination, layer.residual
    arguments = (
        formula,
        128 if epilogue.requantization.centred else -(epilogue.out.zero_point != 0),
        str((epilogue.out.low, epilogue.out.high) == (0, 255)).lower(),
        images.places(destination),
        images.places(residual or destination),
        destination.plane,
        residual.plane if residual else 0,
        destination.blocks,
        images.border(destination),
    )
    return f"octet::ByteOutput<{', '.join(map(str, arguments))}>"


def _filled(values: Array, filters: int) -> Array:
    """Extends `values` to `filters` values by repeating the last one. Results of the added filters are never stored."""
    return np.pad(values, (0, max(0, filters - len(values))), mode="edge")
