"""Convolutions and dense layers on GPUs. Instantiates the template `source/conv.cuh` for a geometry, tile and
epilogue."""

from __future__ import annotations

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.cuda.operators.reads import Reads
from service.compiler.kernels.cuda.text import constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.cuda.tiles import GpuTile, overlap
from service.compiler.kernels.cuda.types import images
from service.compiler.kernels.cuda.types.outputs import output_code
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.kernels.layer import Layer
from service.core.artifacts.call_plan import Launch
from service.core.models.arrays import Array


def conv(
    layer: Layer,
    weights: Array,
    groups: int,
    bias: Array,
    epilogue: AnyEpilogue,
    tile: GpuTile,
    most_blocks: int | None = None,
) -> Kernel:
    """Returns the kernel of a convolution, its requantization, and a residual addition if the epilogue has one.

    Args:
        weights: `[O, KH, KW, C / groups]` integers minus their zero point.
        bias: `[O]`, with the contribution of the source's zero point subtracted (`folded_bias`).
        epilogue: an epilogue whose arrays are extended to whole blocks.
        most_blocks: the largest number of thread blocks. If there are more tiles, each block computes several.
    """
    reads = Reads.of(layer, weights, groups, tile.columns, tile.together)
    column_tiles = len(reads.starts) - 1
    own = (reads.weights.reshape(-1), reads.starts, reads.offsets)
    output = output_code(layer, bias, epilogue, column_tiles * tile.columns, first=len(own))
    constants = (*own, *output.constants)
    pixels = layer.destination.batch * layer.destination.height * layer.destination.width
    flags = [str(flag).lower() for flag in (layer.source.packed, overlap(layer.window), reads.same)]
    shape = (tile.products, tile.steps, tile.stages, tile.slices, reads.most, *flags)
    read = ("source", "constant_0", "constant_1", "constant_2", output.bias)
    tiles = -(-pixels // tile.rows) * column_tiles
    blocks = min(tiles, most_blocks or tiles)
    body = [
        f"using Layer = octet::Convolution<{pixels}, {images.windows(layer)}, {', '.join(map(str, shape))}>;",
        *output.statements,
        f"octet::convolve<Layer>({', '.join(read)}, output, {column_tiles}, {blocks});",
    ]
    parameters = ["const octet::u8* __restrict__ source", *output.residual, *constant_parameters(constants)]
    function = kernel_function(tile.threads, [*parameters, output.destination], body, tile.resident)
    text = translation_unit("conv.cuh", function, output.definitions)
    all_blocks = blocks + images.border_blocks(layer.destination, tile.threads)
    launch = Launch((all_blocks, 1, 1), (tile.threads, 1, 1), tile.shared_bytes(reads.most))
    facts = {"tile": f"{tile.rows}x{tile.columns}, {tile.unit.instruction}", "reads": reads.most}
    return Kernel("conv", DeviceFunction(text, launch), constants, output.size_bytes, facts)
