"""The 3x3 convolutions of ResNet-50 alone, each with tensor cores and with dp4a: artifacts of one call.

Inputs are generated from a seed, as for models, and so are the bytes around the images. NumPy computes the expected
outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu import artifacts
from benchmarks.gpu.samples import digest, inputs_of
from service.cache import OciLayout
from service.compiler.kernels.cuda.gpus import Gpu
from service.compiler.kernels.cuda.operators.conv import conv
from service.compiler.kernels.cuda.tiles import STEP_BYTES, GpuTile, Unit, most_blocks, ranked
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.kernels.layout import Image
from service.core.artifacts.call_plan import ALIGNMENT_BYTES, Buffer, Call, Space
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.target import Target
from tests.support.cuda.layers import SquareConvolution

BATCH = 64
_SHAPES = ((56, 64), (28, 128), (14, 256), (7, 512))  # pixels per side, and channels
FOLDER = "layers"


def kernels(gpu: Gpu, batch: int) -> Iterator[tuple[SquareConvolution, GpuTile, Kernel]]:
    """Yields, for each shape and instruction that `gpu` supports, the kernel with the cost model's best tile."""
    for size, channels in _SHAPES:
        square = SquareConvolution(images=batch, size=size, channels=channels, filters=channels)
        reads = square.kernel**2 * channels // STEP_BYTES
        for unit in filter(lambda unit: unit.macs(gpu), Unit):
            tile = ranked(gpu, square.layer, reads, [unit])[0]
            blocks = most_blocks(gpu, square.layer, reads, tile)
            kernel = conv(square.layer, square.weights, 1, square.bias, square.epilogue, tile, blocks)
            yield square, tile, kernel


def put(gpu: Gpu, target: Target, batch: int, folder: Path) -> list[dict[str, object]]:
    """Writes the artifacts, and returns the records that the GPU's machine reads."""
    layout = OciLayout(folder)
    return [_put(*each, gpu, target, layout) for each in kernels(gpu, batch)]


def _put(
    square: SquareConvolution, tile: GpuTile, kernel: Kernel, gpu: Gpu, target: Target, layout: OciLayout
) -> dict[str, object]:
    assert isinstance(kernel.function, DeviceFunction)
    source, destination = square.layer.source, square.layer.destination
    constants, positions = b"", []
    for array in kernel.constants:
        positions.append(Buffer(Space.CONSTANT, len(constants), array.nbytes))
        constants += array.tobytes() + bytes(-array.nbytes % ALIGNMENT_BYTES)
    # The padding after an output's last element has no defined content.
    images = [source, *([square.layer.residual] if square.layer.residual else [])]
    given = [Buffer(Space.INPUT, index, image.size_bytes) for index, image in enumerate(images)]
    buffers = [*given, *positions, Buffer(Space.OUTPUT, 0, destination.own_bytes)]
    call = Call(kernel.symbol, tuple(range(len(buffers)))), kernel.function.launch
    library = artifacts.linked({kernel.symbol: kernel.function.source}, gpu.capability, target)
    made = artifacts.put(layout, library, target, buffers, [call], constants)
    specs = tuple(TensorSpec(f"input_{index}", "UINT8", (image.size_bytes,)) for index, image in enumerate(images))
    buffers_given = inputs_of(ModelSignature(specs, ()))
    filled = [_framed(image, values) for image, values in zip(images, buffers_given, strict=True)]
    instruction = tile.unit.instruction
    name = f"3x3-{square.size}x{square.size}x{square.channels}-{instruction}"
    pixels = square.images * square.size**2
    return {
        "name": name,
        "folder": FOLDER,
        "artifact": made,
        "answers": digest([_in_blocks(destination, square.answers(*filled))]),
        "shape": f"3x3, {square.size} x {square.size} x {square.channels}",
        "batch": square.images,
        "instruction": instruction,
        "tile": f"{tile.rows} x {tile.columns}",
        "macs": pixels * square.kernel**2 * square.channels * square.filters,
    }


def _framed(image: Image, buffer: Array) -> Array:
    """Returns `[N, H, W, C]` of an image in full blocks, with its halo."""
    top, left, bottom, right = image.halo.sides
    size = image.height + top + bottom, image.width + left + right
    planes = buffer[: image.own_bytes].reshape(image.batch, image.blocks, *size, image.block)
    return planes.transpose(0, 2, 3, 1, 4).reshape(image.batch, *size, image.channels)


def _in_blocks(image: Image, values: Array) -> Array:
    """Returns the inverse of `_framed`, for an image without a halo."""
    blocks = values.reshape(*values.shape[:3], image.blocks, image.block)
    return blocks.transpose(0, 3, 1, 2, 4)
