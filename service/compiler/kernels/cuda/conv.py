"""Convolution and dense layers on cards: the one function of `source/conv.cuh` for each geometry, tile and epilogue."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.cuda import images
from service.compiler.kernels.cuda.epilogues import addition_code, requantization_code
from service.compiler.kernels.cuda.reads import Reads
from service.compiler.kernels.cuda.text import TYPES, constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.tiles import CardTile
from service.compiler.kernels.kernel import Array, DeviceFunction, Kernel
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.simd.epilogue import AnyEpilogue, Epilogue, WideEpilogue
from service.core.call_plan import Launch

_BORDER_CHUNKS = 4  # that a thread fills


def conv(layer: Layer, weights: Array, groups: int, bias: Array, epilogue: AnyEpilogue, tile: CardTile) -> Kernel:
    """A convolution, its requantization, and a residual addition if the epilogue has one.

    Args:
        weights: `[O, KH, KW, C / groups]` integers less their zero point.
        bias: `[O]`, with what the source's zero point contributes taken out (`folded_bias`).
        epilogue: its arrays are filled up to whole blocks.
    """
    reads = Reads.of(layer, weights, groups, tile.columns, tile.steps)
    filters = (len(reads.starts) - 1) * tile.columns
    requantization = requantization_code(epilogue.requantization)
    channel_arrays = [_filled(array, filters) for array in requantization.arrays]
    bias = _filled(epilogue.requantization.started(bias), filters)
    constants = [reads.weights.reshape(-1), reads.starts, reads.offsets, bias, *channel_arrays]
    names = [f"constant_{place}" for place in range(len(constants))]
    made = requantization.made_of(names[4:])
    if isinstance(epilogue, Epilogue):
        constants.append(epilogue.parameters)
        type_, output = _to_bytes(layer, epilogue, made, f"constant_{len(constants) - 1}")
    else:
        type_, output = _to_values(layer, epilogue, made)
    pixels = layer.destination.batch * layer.destination.height * layer.destination.width
    shape = (tile.products, tile.steps, tile.stages, reads.most, str(layer.source.packed).lower())
    body = [
        f"using Layer = octet::Convolution<{pixels}, {images.windows(layer)}, {', '.join(map(str, shape))}>;",
        f"using Output = {type_};",
        f"const Output output{{{output}}};",
        f"octet::convolve<Layer>(source, {', '.join(names[:4])}, output, {len(reads.starts) - 1});",
    ]
    parameters = ["const octet::u8* __restrict__ source"]
    parameters += ["const octet::u8* __restrict__ residual"] if layer.residual else []
    parameters += [*constant_parameters(constants), f"{TYPES[epilogue.dtype]}* __restrict__ destination"]
    text = translation_unit("conv.cuh", kernel_function(tile.threads, parameters, body))
    tiles = -(-pixels // tile.rows) * (len(reads.starts) - 1)
    border = -(-images.border_chunks(layer.destination) // (tile.threads * _BORDER_CHUNKS))
    launch = Launch((tiles + border, 1, 1), (tile.threads, 1, 1), tile.shared_bytes(reads.most))
    size = layer.destination.size_bytes * np.dtype(epilogue.dtype).itemsize
    facts = {"tile": f"{tile.rows}x{tile.columns}, {'mma' if tile.matrix else 'dp4a'}", "reads": reads.most}
    return Kernel("conv", DeviceFunction(text, launch), tuple(constants), size, facts)


def _to_bytes(layer: Layer, epilogue: Epilogue, requantization: str, parameters: str) -> tuple[str, str]:
    """The type of the output, and what it is made of."""
    destination, residual = layer.destination, layer.residual
    added = images.places(residual or destination)
    arguments = (
        requantization.partition("{")[0],
        str(epilogue.requantization.centred).lower(),
        addition_code(epilogue.addition),
        images.places(destination),
        added,
        destination.plane,
        residual.plane if residual else 0,
        destination.blocks,
        images.border(destination),
    )
    given = (requantization, "residual" if residual else "nullptr", parameters, "destination")
    return f"octet::ByteOutput<{', '.join(map(str, arguments))}>", ", ".join(given)


def _to_values(layer: Layer, epilogue: WideEpilogue, requantization: str) -> tuple[str, str]:
    destination = layer.destination
    arguments = (TYPES[epilogue.dtype], requantization.partition("{")[0], images.places(destination))
    return f"octet::WideOutput<{', '.join(arguments)}, {destination.channels}>", f"{requantization}, destination"


def _filled(values: Array, filters: int) -> Array:
    """`values` up to whole tiles, by repeating the last; those further ones are never stored."""
    return np.pad(values, (0, max(0, filters - len(values))), mode="edge")
