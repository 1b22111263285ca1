"""The memory layouts of kernels' tensors.

A kernel's tensor is a flat uint8 buffer. Signed activations are stored with 128 added (`BIAS`), so that all kernels
read and write unsigned bytes. The *stored* value of an activation, a zero point or a bound is this unsigned byte. A
tensor can have a *halo*, a border around each image that contains the zero point. The kernel that writes the tensor
also writes the halo, so that a kernel that reads the tensor finds its padding in memory. After the last element there
is slack, so that a vector can be loaded from any element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLACK_BYTES = 64
BIAS = {"int8": 128, "uint8": 0}


@dataclass(frozen=True)
class Halo:
    """The number of rows and columns around an image."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    def __or__(self, other: Halo) -> Halo:
        """Returns the smallest halo that includes both."""
        return Halo(*(max(pair) for pair in zip(self.sides, other.sides, strict=True)))

    def __add__(self, other: Halo) -> Halo:
        return Halo(*(sum(pair) for pair in zip(self.sides, other.sides, strict=True)))

    @property
    def sides(self) -> tuple[int, int, int, int]:
        return self.top, self.left, self.bottom, self.right

    def __bool__(self) -> bool:
        return any(self.sides)


NO_HALO = Halo()


@dataclass(frozen=True)
class Image:
    """The memory layout of a tensor `[batch, height, width, channels]`. Strides are in bytes.

    Attributes:
        block: the number of channels in a block, which are contiguous (`nChw16c`). The last block is extended with
            filler. 0 means *packed*: all channels of a pixel are contiguous, so a row of pixels is one run of bytes.
        halo: the border on each side, which is included in the strides.
        first_block: for a part of a larger image (`part`), the number of its first block in that image's memory.
        shared_blocks: the number of blocks of the larger image; 0 if the image has its own memory.
    """

    batch: int
    height: int
    width: int
    channels: int
    block: int
    halo: Halo = NO_HALO
    first_block: int = 0
    shared_blocks: int = 0

    def part(self, block: int, channels: int) -> Image:
        """Returns `channels` channels of this image, beginning with block `block`, as an image in the same memory.

        The last block may also contain channels of another part.
        """
        whole = self.shared_blocks or self.blocks
        return replace(self, channels=channels, first_block=self.first_block + block, shared_blocks=whole)

    @property
    def packed(self) -> bool:
        return self.block == 0

    @property
    def blocks(self) -> int:
        return 1 if self.packed else -(-self.channels // self.block)

    @property
    def pixel(self) -> int:
        """The bytes from one column to the next."""
        return self.block or self.channels

    @property
    def row(self) -> int:
        return (self.width + self.halo.left + self.halo.right) * self.pixel

    @property
    def plane(self) -> int:
        """The bytes from one block of channels to the next."""
        return (self.height + self.halo.top + self.halo.bottom) * self.row

    @property
    def image(self) -> int:
        """The bytes from one image of the batch to the next."""
        return (self.shared_blocks or self.blocks) * self.plane

    @property
    def size_bytes(self) -> int:
        """The size of the memory that contains the tensor."""
        return self.batch * self.image + SLACK_BYTES

    @property
    def own_bytes(self) -> int:
        """The size of the tensor's planes, without slack and without other parts of a larger image."""
        return self.batch * self.blocks * self.plane

    @property
    def margin(self) -> int:
        """The bytes from the beginning of a plane to its first element inside the halo."""
        return self.halo.top * self.row + self.halo.left * self.pixel

    @property
    def origin(self) -> int:
        """The offset of the first element inside the halo."""
        return self.first_block * self.plane + self.margin

    def plane_start(self, number: Any) -> Any:
        """Returns the offset of a plane. `number` is `image * blocks + block`, an integer or an expression."""
        if not self.shared_blocks:
            return number * self.plane
        image, block = (0, number) if self.batch == 1 else (number // self.blocks, number % self.blocks)
        return image * self.image + (block + self.first_block) * self.plane

    def at(self, image: Any, block: Any, row: Any, column: Any) -> Any:
        """Returns the offset of one channel block of one pixel. Each argument is an integer or an expression."""
        return image * self.image + block * self.plane + row * self.row + column * self.pixel + self.origin

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.height, self.width, self.channels

    @property
    def contiguous_rows(self) -> bool:
        """True if the rows of a plane follow each other without gaps."""
        return not (self.halo.left or self.halo.right)

    @property
    def stacked(self) -> Image:
        """Returns a batch of one-pixel images as one image with a row for each of them."""
        return Stack.of(self)


@dataclass(frozen=True)
class Contiguous(Image):
    """The layout of a contiguous tensor `[N, H, W, C]`, described as an image in which the blocks of a pixel are
    contiguous.

    The elements may be wider than a byte. Sizes and strides count elements. The last block has no filler.
    """

    @staticmethod
    def of(shape: tuple[int, int, int, int], block: int) -> Contiguous:
        return Contiguous(*shape, block)

    @property
    def pixel(self) -> int:
        return self.channels

    @property
    def plane(self) -> int:
        return self.block

    @property
    def image(self) -> int:
        return self.height * self.row

    @property
    def size_bytes(self) -> int:
        return self.batch * self.image

    @property
    def own_bytes(self) -> int:
        return self.size_bytes

    @property
    def stacked(self) -> Image:
        return Contiguous.of((1, self.batch, 1, self.channels), self.block)


def laid_out(image: Image, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns stored values `[N, H, W, C]` in the layout of an image in blocks without a halo. Filler is 0."""
    assert values.shape == image.shape
    assert image.size_bytes == image.batch * image.blocks * image.height * image.width * image.block + SLACK_BYTES
    filled = np.zeros((*image.shape[:3], image.blocks * image.block), np.uint8)
    filled[..., : image.channels] = values
    blocked = filled.reshape(*image.shape[:3], image.blocks, image.block).transpose(0, 3, 1, 2, 4)
    return np.concatenate([blocked.reshape(-1), np.zeros(SLACK_BYTES, np.uint8)])


@dataclass(frozen=True)
class Stack(Image):
    """A batch of one-pixel images as the rows of one image `[1, N, 1, C]`, so that a tile can contain several of
    them."""

    @staticmethod
    def of(image: Image) -> Stack:
        """Stacks the images of `image`, which must be `[N, 1, 1, C]` without a halo."""
        shared = image.first_block, image.shared_blocks
        return Stack(1, image.batch, 1, image.channels, image.block, NO_HALO, *shared)

    @property
    def row(self) -> int:
        return (self.shared_blocks or self.blocks) * self.pixel

    @property
    def plane(self) -> int:
        return self.pixel

    @property
    def image(self) -> int:
        return self.height * self.row

    @property
    def contiguous_rows(self) -> bool:
        return False
