"""Between the tensors that a model's caller sees, contiguous, and the images that kernels work on.

Tensors are `[N, H, W, C]`, or `[N, C, H, W]` (`channels_first`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.cuda.conversion import Conversion, as_bytes, dequantizing, quantizing
from service.compiler.kernels.cuda.images import BLOCK, CHUNK_BYTES, check_sizes
from service.compiler.kernels.cuda.text import TYPES, constant_parameters, kernel_function, translation_unit
from service.compiler.kernels.kernel import Array, Declined, DeviceFunction, Kernel
from service.compiler.kernels.layout import NO_HALO, Halo, Image
from service.compiler.kernels.simd.conversion import Dequantization, Quantization
from service.core.call_plan import Launch

_THREADS = 256


def pack(
    destination: Image,
    dtype: str,
    zero_point: int,
    quantization: Quantization | None = None,
    *,
    channels_first: bool = False,
) -> Kernel:
    """From a contiguous tensor, filling the halo.

    The kernel takes `[N * H * W * C]` of `dtype`, without slack behind it, and a uint8 for the halo. What lies behind
    the last channel in the last block becomes 0.

    Args:
        destination: packed, or in blocks.
        dtype: uint8, or int8, to which 128 is added; float32 with a `quantization`.
        zero_point: what the halo holds, as stored.
        channels_first: whether the tensor is `[N, C, H, W]`, and not `[N, H, W, C]`.

    Raises:
        Declined: another dtype or layout.
    """
    conversion = as_bytes(dtype) if quantization is None else quantizing(quantization)
    ends = _contiguous(destination, channels_first=channels_first), _Blocks.of(destination)
    fill = [np.array([zero_point], np.uint8)] if destination.halo else []
    facts = _facts(destination, channels_first=channels_first)
    return _kernel("pack", destination, *ends, conversion, fill, destination.size_bytes, facts)


def unpack(
    source: Image, dtype: str, dequantization: Dequantization | None = None, *, channels_first: bool = False
) -> Kernel:
    """To a contiguous tensor `[N * H * W * C]` of `dtype`, without slack behind it.

    Args:
        source: packed, or in blocks.
        dtype: uint8, or int8, for which 128 is subtracted; float32 with a `dequantization`.
        channels_first: whether the tensor is `[N, C, H, W]`, and not `[N, H, W, C]`.

    Raises:
        Declined: another dtype or layout.
    """
    conversion = as_bytes(dtype) if dequantization is None else dequantizing(dequantization)
    ends = _Blocks.of(source), _contiguous(source, channels_first=channels_first)
    size = math.prod(source.shape) * np.dtype(dtype).itemsize
    return _kernel("unpack", source, *ends, conversion, [], size, _facts(source, channels_first=channels_first))


@dataclass(frozen=True)
class _Blocks:
    """A layout as blocks of channels that lie side by side, in elements.

    Attributes:
        lanes: channels of a block.
        blocks: of a pixel.
        image, plane, row, pixel: from one to the next; `plane` is of a block.
        origin: of the first element inside the halo.
    """

    lanes: int
    blocks: int
    image: int
    plane: int
    row: int
    pixel: int
    origin: int = 0
    halo: Halo = NO_HALO

    @staticmethod
    def of(image: Image) -> _Blocks:
        if image.block not in (0, BLOCK):
            raise Declined(f"cards have no blocks of {image.block} channels")
        strides = image.image, image.plane, image.row, image.pixel
        return _Blocks(image.pixel, image.blocks, *strides, image.origin, image.halo)

    @property
    def strides(self) -> str:
        numbers = (self.lanes, self.image, self.plane, self.row, self.pixel, self.origin)
        return f"octet::Strides<{', '.join(map(str, numbers))}>"

    def elements(self, image: Image) -> str:
        """Their order in memory; `image`: for its extents."""
        sizes = (image.batch, self.blocks, image.height, image.width, self.lanes, image.channels, *self.halo.sides)
        return f"octet::Elements<{', '.join(map(str, sizes))}>"

    def count(self, image: Image) -> int:
        """Elements in memory."""
        top, left, bottom, right = self.halo.sides
        pixels = (top + image.height + bottom) * (left + image.width + right)
        return image.batch * self.blocks * pixels * self.lanes


def _contiguous(image: Image, *, channels_first: bool) -> _Blocks:
    pixels, channels = image.height * image.width, image.channels
    if channels_first and pixels > 1:
        return _Blocks(1, channels, channels * pixels, pixels, image.width, 1)
    return _Blocks(channels, 1, pixels * channels, 0, image.width * channels, channels)


def _kernel(
    family: str,
    image: Image,
    source: _Blocks,
    destination: _Blocks,
    conversion: Conversion,
    fill: list[Array],
    size_bytes: int,
    facts: dict[str, str],
) -> Kernel:
    check_sizes(image)
    own = CHUNK_BYTES // np.dtype(conversion.destination).itemsize
    at_once = math.gcd(own, source.lanes, destination.lanes, image.channels)
    types = (destination.elements(image), destination.strides, source.strides, at_once, conversion.type)
    constants = [*fill, *([] if conversion.numbers is None else [conversion.numbers])]
    names = [f"constant_{place}" for place in range(len(constants))]
    made = f"{conversion.type}{{{'' if conversion.numbers is None else names[-1]}}}"
    value = f"{names[0]}[0]" if fill else "0"
    body = [f"octet::reorder<{', '.join(map(str, types))}>(source, {made}, {value}, destination);"]
    parameters = [f"const {TYPES[conversion.source]}* __restrict__ source", *constant_parameters(constants)]
    parameters += [f"{TYPES[conversion.destination]}* __restrict__ destination"]
    text = translation_unit("reorder.cuh", kernel_function(_THREADS, parameters, body))
    blocks = -(-destination.count(image) // (own * _THREADS))
    function = DeviceFunction(text, Launch((blocks, 1, 1), (_THREADS, 1, 1), 0))
    return Kernel(family, function, tuple(constants), size_bytes, facts)


def _facts(image: Image, *, channels_first: bool) -> dict[str, str]:
    layout = {"layout": "packed" if image.packed else f"blocks of {image.block}"}
    return {**layout, "tensor": "channels first"} if channels_first else layout
