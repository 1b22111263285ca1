"""Expresses memory layouts as template arguments of `source/elements.cuh`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from service.compiler.kernels.cuda.types.images import BLOCK, CHUNK_BYTES
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import NO_HALO, Halo, Image
from service.core.artifacts.call_plan import Launch

THREADS = 256  # the threads of a thread block, in kernels whose threads are independent


@dataclass(frozen=True)
class Blocks:
    """The layout of a tensor in blocks of contiguous channels. Strides and offsets count elements.

    Attributes:
        extents: the number of images, rows and columns.
        channels: the number of channels without filler.
        lanes: the number of channels in a block.
        blocks: the number of blocks of a pixel.
        steps: the strides of images, blocks, rows and columns.
        origin: the offset of the first element inside the halo.
    """

    extents: tuple[int, int, int]
    channels: int
    lanes: int
    blocks: int
    steps: tuple[int, int, int, int]
    origin: int = 0
    halo: Halo = NO_HALO

    @staticmethod
    def of(image: Image) -> Blocks:
        """Returns the layout of an image.

        Raises:
            Declined: GPU kernels do not support the size of the image's blocks.
        """
        if image.block not in (0, BLOCK):
            raise Declined(f"GPU kernels do not support blocks of {image.block} channels")
        extents, steps = image.shape[:3], (image.image, image.plane, image.row, image.pixel)
        return Blocks(extents, image.channels, image.pixel, image.blocks, steps, image.origin, image.halo)

    @staticmethod
    def contiguous(shape: tuple[int, int, int, int], *, channels_first: bool = False) -> Blocks:
        """Returns the layout of a contiguous tensor of `shape` `[N, H, W, C]`, stored as `[N, C, H, W]` if
        `channels_first`."""
        images, height, width, channels = shape
        extents, pixels = (images, height, width), height * width
        if channels_first and pixels > 1:
            return Blocks(extents, channels, 1, channels, (channels * pixels, pixels, width, 1))
        return Blocks(extents, channels, channels, 1, (pixels * channels, 0, width * channels, channels))

    @property
    def filled(self) -> Blocks:
        """Returns the layout in which filler counts as channels."""
        return replace(self, channels=self.blocks * self.lanes)

    def planes(self, count: int) -> Blocks:
        """Returns the layout of a `[N, C, H, W]` tensor with `count` channels instead of `channels`."""
        return replace(self, channels=count, lanes=1, blocks=count)

    def repeated(self, extents: tuple[int, int, int]) -> Blocks:
        """Returns the layout of the tensor broadcast to `extents`, along dimensions in which it has extent 1.

        Raises:
            Declined: an extent is neither 1 nor equal to that of `extents`.
        """
        if any(own not in (1, other) for own, other in zip(self.extents, extents, strict=True)):
            raise Declined(f"{self.extents} cannot be repeated to {extents}")
        steps = self.steps[0], *self.steps[2:]
        image, row, column = (0 if own == 1 else step for own, step in zip(self.extents, steps, strict=True))
        return replace(self, steps=(image, self.steps[1], row, column))

    @property
    def strides(self) -> str:
        """The C++ type that converts the position of an element to its offset."""
        return f"octet::Strides<{', '.join(map(str, (self.lanes, *self.steps, self.origin)))}>"

    @property
    def order(self) -> str:
        """The C++ type that converts the number of an element to its position."""
        images, *sizes = self.extents
        numbers = (images, self.blocks, *sizes, self.lanes, self.channels, *self.halo.sides)
        return f"octet::Elements<{', '.join(map(str, numbers))}>"

    @property
    def elements(self) -> int:
        """The number of elements including halo and filler."""
        images, height, width = self.extents
        top, left, bottom, right = self.halo.sides
        return images * self.blocks * (top + height + bottom) * (left + width + right) * self.lanes


def launch_for(destination: Blocks, element_bytes: int = 1) -> Launch:
    """Returns the launch parameters of a kernel whose threads write 16 bytes of `destination` each."""
    threads = -(-destination.elements * element_bytes // CHUNK_BYTES)
    return Launch((-(-threads // THREADS), 1, 1), (THREADS, 1, 1))


def require_blocks(*images: Image) -> None:
    """Checks the layout of a kernel's images.

    Raises:
        Declined: an image is packed.
    """
    if any(image.block != BLOCK for image in images):
        raise Declined(f"an image is not in blocks of {BLOCK} channels")
