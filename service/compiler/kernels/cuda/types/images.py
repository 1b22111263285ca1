"""Expresses layouts of images as template arguments of `source/image.cuh`."""

from __future__ import annotations

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.layout import Contiguous, Image

WORD = 4  # the number of bytes that one `dp4a` multiplies
BLOCK = 32  # the number of channels in a block, which one reduction step multiplies
CHUNK_BYTES = 16  # the number of bytes that a thread copies at a time
_BORDER_CHUNKS = 4  # the number of chunks of a halo that a thread fills
_MOST_BYTES = 1 << 31


def places(image: Image) -> str:
    """Returns the C++ type that computes the offset of each pixel of `image`."""
    return _places(image.height, image.width, image.image, image.row, image.pixel, image.origin)


def blocks(image: Image) -> str:
    """Returns the C++ type that computes the offset of each pixel's channel blocks in `image`."""
    return f"octet::Blocks<{places(image)}, {image.plane}>"


def parts(image: Image, of_pixel: int) -> str:
    """Returns the C++ type that numbers the parts of `image`. Each block of a pixel is divided into `of_pixel`
    parts."""
    sizes = (image.batch, image.blocks, image.height, image.width, of_pixel)
    return f"octet::Parts<{', '.join(map(str, sizes))}, {border(image)}>"


def part_blocks(image: Image, of_pixel: int, threads: int, together: int = 1) -> int:
    """Returns the number of thread blocks, of `threads` threads each, that write `image` and its halo.

    Args:
        together: the number of threads that compute one part.
    """
    count = image.batch * image.blocks * image.height * image.width * of_pixel
    return -(-count // (threads // together)) + border_blocks(image, threads)


def check_blocks(*images: Image) -> None:
    """Checks the layout and the size of images.

    Raises:
        Declined: an image is not in blocks of `BLOCK` channels, or is too large.
    """
    if any(image.block != BLOCK for image in images):
        raise Declined(f"an image is not in blocks of {BLOCK} channels")
    check_sizes(*images)


def windows(layer: Layer) -> str:
    """Returns the C++ type that computes the offset of each output pixel's window in the source."""
    (top, left), (down, right), source = layer.window.padding, layer.steps, layer.source
    first = source.origin - top * source.row - left * source.pixel
    return _places(layer.destination.height, layer.destination.width, source.image, down, right, first)


def border(image: Image) -> str:
    """Returns the C++ type that fills the halo of `image`."""
    top, left, bottom, right = image.halo.sides
    first = image.origin - image.margin
    sizes = (image.batch, image.blocks, image.height, image.width, top, left, bottom, right)
    return f"octet::Border<{', '.join(map(str, (*sizes, image.image, image.plane, first)))}>"


def border_blocks(image: Image, threads: int) -> int:
    """Returns the number of thread blocks, of `threads` threads each, that fill the halo of `image`."""
    if isinstance(image, Contiguous):
        return 0
    top, left, bottom, right = image.halo.sides
    around = (image.height + top + bottom) * (image.width + left + right) - image.height * image.width
    chunks = image.batch * image.blocks * around * (BLOCK // CHUNK_BYTES)
    return -(-chunks // (threads * _BORDER_CHUNKS))


def check_sizes(*images: Image) -> None:
    """Checks the sizes of images.

    Raises:
        Declined: the offsets of a tensor do not fit an int32.
    """
    if any(image.size_bytes >= _MOST_BYTES for image in images):
        raise Declined("a tensor is larger than 2 GiB")


def _places(*numbers: int) -> str:
    return f"octet::Places<{', '.join(map(str, numbers))}>"
