"""Layouts as the template arguments of `source/elements.cuh`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from service.compiler.kernels.cuda.images import BLOCK, CHUNK_BYTES
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import NO_HALO, Halo, Image
from service.core.call_plan import Launch

THREADS = 256  # of a block, in kernels whose threads have nothing to do with each other


@dataclass(frozen=True)
class Blocks:
    """A tensor as blocks of channels that lie side by side; distances are in elements.

    Attributes:
        extents: images, rows and columns.
        channels: without fillers.
        lanes: channels of a block.
        blocks: of a pixel.
        steps: from one image, block, row and column to the next.
        origin: of the first element inside the halo.
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
        """
        Raises:
            Declined: its blocks are not those of cards.
        """
        if image.block not in (0, BLOCK):
            raise Declined(f"cards have no blocks of {image.block} channels")
        extents, steps = image.shape[:3], (image.image, image.plane, image.row, image.pixel)
        return Blocks(extents, image.channels, image.pixel, image.blocks, steps, image.origin, image.halo)

    @staticmethod
    def contiguous(shape: tuple[int, int, int, int], *, channels_first: bool = False) -> Blocks:
        """`shape`: `[N, H, W, C]`, which lies as `[N, C, H, W]` if `channels_first`."""
        images, height, width, channels = shape
        extents, pixels = (images, height, width), height * width
        if channels_first and pixels > 1:
            return Blocks(extents, channels, 1, channels, (channels * pixels, pixels, width, 1))
        return Blocks(extents, channels, channels, 1, (pixels * channels, 0, width * channels, channels))

    @property
    def filled(self) -> Blocks:
        """With fillers as channels."""
        return replace(self, channels=self.blocks * self.lanes)

    def planes(self, count: int) -> Blocks:
        """As many channels that come first."""
        return replace(self, channels=count, lanes=1, blocks=count)

    def repeated(self, extents: tuple[int, int, int]) -> Blocks:
        """With its one image, row or column read for all of `extents`.

        Raises:
            Declined: it has others.
        """
        if any(own not in (1, other) for own, other in zip(self.extents, extents, strict=True)):
            raise Declined(f"{self.extents} is not repeated for {extents}")
        steps = self.steps[0], *self.steps[2:]
        image, row, column = (0 if own == 1 else step for own, step in zip(self.extents, steps, strict=True))
        return replace(self, steps=(image, self.steps[1], row, column))

    @property
    def strides(self) -> str:
        """The type that says where each element lies."""
        return f"octet::Strides<{', '.join(map(str, (self.lanes, *self.steps, self.origin)))}>"

    @property
    def order(self) -> str:
        """The type that says which element each number means."""
        images, *sizes = self.extents
        numbers = (images, self.blocks, *sizes, self.lanes, self.channels, *self.halo.sides)
        return f"octet::Elements<{', '.join(map(str, numbers))}>"

    @property
    def elements(self) -> int:
        """With the halo and fillers."""
        images, height, width = self.extents
        top, left, bottom, right = self.halo.sides
        return images * self.blocks * (top + height + bottom) * (left + width + right) * self.lanes


def launch_for(destination: Blocks, element_bytes: int = 1) -> Launch:
    """Of threads that make 16 bytes each."""
    threads = -(-destination.elements * element_bytes // CHUNK_BYTES)
    return Launch((-(-threads // THREADS), 1, 1), (THREADS, 1, 1))


def require_blocks(*images: Image) -> None:
    """Checks the layout of a kernel's images.

    Raises:
        Declined: an image is packed.
    """
    if any(image.block != BLOCK for image in images):
        raise Declined(f"an image is not in blocks of {BLOCK} channels")
