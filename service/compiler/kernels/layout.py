"""Memory layouts of kernels' tensors.

A kernel's tensor is a flat uint8 buffer. Signed activations are stored 128 higher (`BIAS`), so that every kernel reads
and writes unsigned bytes. A tensor has a *halo*: a border of its zero point around each image, written by whoever
writes the tensor, so that a reader's padding is already there. Behind the last element lies slack, so that a vector
may be loaded from any element.
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
    """Rows and columns around an image."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    def __or__(self, other: Halo) -> Halo:
        """The smallest halo that holds both."""
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
    """A tensor `[batch, height, width, channels]` in memory, as the strides (bytes) of its dimensions.

    Attributes:
        block: channels that lie side by side (`nChw16c`); the last block is filled up. 0 is *packed*: all channels of
            a pixel are contiguous, so that a row of pixels is one run of bytes.
        halo: border on each side, inside the strides.
        first_block: where it begins in a larger image whose memory it shares (`part`).
        shared_blocks: how many blocks that one has; 0 where the memory is its own.
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
        """`channels` of this image from number `block` of its blocks on, where they lie: an image in the same memory.

        Behind the last of them there may be those of another part, in the same block.
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
        """From one column to the next."""
        return self.block or self.channels

    @property
    def row(self) -> int:
        return (self.width + self.halo.left + self.halo.right) * self.pixel

    @property
    def plane(self) -> int:
        """From one block of channels to the next."""
        return (self.height + self.halo.top + self.halo.bottom) * self.row

    @property
    def image(self) -> int:
        """From one image of the batch to the next."""
        return (self.shared_blocks or self.blocks) * self.plane

    @property
    def size_bytes(self) -> int:
        """The size of the memory that holds the tensor."""
        return self.batch * self.image + SLACK_BYTES

    @property
    def own_bytes(self) -> int:
        """The size of the tensor's own planes."""
        return self.batch * self.blocks * self.plane

    @property
    def margin(self) -> int:
        """From where a plane begins to its first element inside the halo."""
        return self.halo.top * self.row + self.halo.left * self.pixel

    @property
    def origin(self) -> int:
        """The offset of the first element inside the halo."""
        return self.first_block * self.plane + self.margin

    def plane_start(self, number: Any) -> Any:
        """The offset of a plane. Planes are numbered `image * blocks + block`, by an integer or an expression."""
        if not self.shared_blocks:
            return number * self.plane
        image, block = (0, number) if self.batch == 1 else (number // self.blocks, number % self.blocks)
        return image * self.image + (block + self.first_block) * self.plane

    def at(self, image: Any, block: Any, row: Any, column: Any) -> Any:
        """The offset of a block of a pixel. Each argument is an integer or an expression."""
        return image * self.image + block * self.plane + row * self.row + column * self.pixel + self.origin

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.height, self.width, self.channels

    @property
    def contiguous_rows(self) -> bool:
        """Whether each plane is one run of pixels."""
        return not (self.halo.left or self.halo.right)

    @property
    def stacked(self) -> Image:
        """Images of one pixel as the rows of one image."""
        return Stack.of(self)


@dataclass(frozen=True)
class Contiguous(Image):
    """A tensor `[N, H, W, C]` as the model has it, seen as blocks of channels that lie side by side in a pixel.

    It may hold other values than bytes, and all its sizes count elements. The last block ends with the last channel.
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
    """`[N, H, W, C]`, as stored, in the memory of an image in blocks, without a halo; fillers and slack are 0."""
    assert values.shape == image.shape
    assert image.size_bytes == image.batch * image.blocks * image.height * image.width * image.block + SLACK_BYTES
    filled = np.zeros((*image.shape[:3], image.blocks * image.block), np.uint8)
    filled[..., : image.channels] = values
    blocked = filled.reshape(*image.shape[:3], image.blocks, image.block).transpose(0, 3, 1, 2, 4)
    return np.concatenate([blocked.reshape(-1), np.zeros(SLACK_BYTES, np.uint8)])


@dataclass(frozen=True)
class Stack(Image):
    """Images of one pixel seen as the rows of one image, `[1, N, 1, C]`: a kernel's tile may then hold several."""

    @staticmethod
    def of(image: Image) -> Stack:
        """`image` is `[N, 1, 1, C]`, without a halo."""
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
