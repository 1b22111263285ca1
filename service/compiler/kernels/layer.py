"""The geometry of a layer, and its weights and bias in the form that all kernels use."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Expr
from service.core.models.arrays import Array


@dataclass(frozen=True)
class Window:
    """The window of input pixels that an output pixel depends on."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)  # top, left


@dataclass(frozen=True)
class Layer:
    """The geometry of a convolution.

    If the source is packed, the input bytes under one row of kernel taps are contiguous.
    """

    source: Image
    destination: Image
    window: Window
    residual: Image | None = None

    @property
    def flat(self) -> bool:
        """True if the rows of source and destination follow each other without gaps, so that a tile may span rows."""
        same = self.window.kernel == (1, 1) and self.window.strides == (1, 1) and self.window.padding == (0, 0)
        return same and not self.source.packed and all(image.contiguous_rows for image in self._images)

    @property
    def stacked(self) -> Layer:
        """Returns the layer with a batch of one-pixel images (as in a classifier) joined to one image of many rows.

        Any other layer is returned unchanged.
        """
        alone = all(image.height == image.width == 1 and not image.halo for image in self._images)
        if self.source.batch == 1 or not alone or self.window.kernel != (1, 1):
            return self
        residual = self.residual.stacked if self.residual else None
        return Layer(self.source.stacked, self.destination.stacked, Window((1, 1)), residual)

    def narrowed(self, pixels: int) -> Layer:
        """Returns a layer of `pixels` pixels in one row, with the channels of this one, which must be `flat`."""
        source, destination, *residual = (replace(image, height=1, width=pixels) for image in self._images)
        return Layer(source, destination, self.window, residual[0] if residual else None)

    @property
    def _images(self) -> list[Image]:
        return [self.source, self.destination, *([self.residual] if self.residual else [])]

    @property
    def steps(self) -> tuple[int, int]:
        """The distance in bytes from an output pixel's window to the window of the pixel below, and of the pixel to the
        right."""
        stride_h, stride_w = self.window.strides
        return stride_h * self.source.row, stride_w * self.source.pixel

    def first_byte(self, image: Expr, row: Expr, column: Expr) -> Expr:
        """Returns the offset of the first byte of an output pixel's window, in the source's first block of channels."""
        (top, left), (down, right) = self.window.padding, self.steps
        start = self.source.origin - top * self.source.row - left * self.source.pixel
        return image * self.source.image + row * down + column * right + start

    @property
    def output(self) -> tuple[int, int]:
        """The rows and columns of the output that are divided into tiles."""
        height, width = self.destination.height, self.destination.width
        return (1, height * width) if self.flat else (height, width)


def folded_bias(bias: Array | None, weights: Array, zero_point: int, channels: int) -> Array:
    """Returns the bias minus zero_point * sum(weights), wrapped to int32 and extended with zeros to `channels`.

    These are terms 3 and 4 of the expansion of a quantized product (`qnn.numerics.sums.accumulate`).

    Args:
        zero_point: the zero point of the operands of the products: the source's stored zero point minus
            `Isa.operand_zero_point`.
    """
    sums = weights.reshape(len(weights), -1).astype(np.int64).sum(axis=1)
    total = (0 if bias is None else bias.astype(np.int64)) - zero_point * sums
    return fill(total.astype(np.int32), channels)


def fill(values: Array, channels: int) -> Array:
    """Returns `values`, extended with zeros to `channels`."""
    return np.concatenate([values, np.zeros(channels - len(values), values.dtype)])
