"""Layouts as the template arguments of `source/image.cuh`."""

from __future__ import annotations

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.layout import Contiguous, Image

WORD = 4  # bytes that one instruction reads together
BLOCK = 32  # channels that lie side by side: what one step of a product reads of a pixel
CHUNK_BYTES = 16  # that one thread moves at a time
_BORDER_CHUNKS = 4  # that a thread fills
_MOST_BYTES = 1 << 31


def places(image: Image) -> str:
    """The type that says where each pixel of `image` lies."""
    return _places(image.height, image.width, image.image, image.row, image.pixel, image.origin)


def blocks(image: Image) -> str:
    """The type that says where each block of each pixel of `image` lies."""
    return f"octet::Blocks<{places(image)}, {image.plane}>"


def parts(image: Image, of_pixel: int) -> str:
    """The type that numbers the parts of `image`, so many of each block of a pixel."""
    sizes = (image.batch, image.blocks, image.height, image.width, of_pixel)
    return f"octet::Parts<{', '.join(map(str, sizes))}, {border(image)}>"


def part_blocks(image: Image, of_pixel: int, threads: int, together: int = 1) -> int:
    """How many blocks of so many threads write `image` and its border, `together` of them one part."""
    count = image.batch * image.blocks * image.height * image.width * of_pixel
    return -(-count // (threads // together)) + border_blocks(image, threads)


def check_blocks(*images: Image) -> None:
    """
    Raises:
        Declined: an image is not in the cards' blocks of channels, or too large.
    """
    if any(image.block != BLOCK for image in images):
        raise Declined(f"an image is not in blocks of {BLOCK} channels")
    check_sizes(*images)


def windows(layer: Layer) -> str:
    """The type that says where each output pixel's window begins in the source."""
    (top, left), (down, right), source = layer.window.padding, layer.steps, layer.source
    first = source.origin - top * source.row - left * source.pixel
    return _places(layer.destination.height, layer.destination.width, source.image, down, right, first)


def border(image: Image) -> str:
    """The type that fills the halo of `image`."""
    top, left, bottom, right = image.halo.sides
    first = image.origin - image.margin
    sizes = (image.batch, image.blocks, image.height, image.width, top, left, bottom, right)
    return f"octet::Border<{', '.join(map(str, (*sizes, image.image, image.plane, first)))}>"


def border_blocks(image: Image, threads: int) -> int:
    """How many blocks of so many threads fill the halo of `image`."""
    if isinstance(image, Contiguous):
        return 0
    top, left, bottom, right = image.halo.sides
    around = (image.height + top + bottom) * (image.width + left + right) - image.height * image.width
    chunks = image.batch * image.blocks * around * (BLOCK // CHUNK_BYTES)
    return -(-chunks // (threads * _BORDER_CHUNKS))


def check_sizes(*images: Image) -> None:
    """
    Raises:
        Declined: offsets of a tensor do not fit an int32.
    """
    if any(image.size_bytes >= _MOST_BYTES for image in images):
        raise Declined("a tensor is larger than 2 GiB")


def _places(*numbers: int) -> str:
    return f"octet::Places<{', '.join(map(str, numbers))}>"
