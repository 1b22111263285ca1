"""Layers of fixed sizes, for tests of tiles rather than of formulas. NumPy computes their expected outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.compiler.kernels.arithmetic.epilogue import Bounds, Epilogue
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Halo, Image
from service.compiler.qnn.expressions.requantization import FloatScale
from service.compiler.qnn.expressions.sums import ScaledAddition

BLOCK = 32


@dataclass(frozen=True)
class SquareConvolution:
    """A convolution with a square window on square images, requantized by a float scale.

    The images are padded so that they keep their size.

    Attributes:
        kernel: the number of rows and columns of the window, which is odd.
        adds: true if half of a residual is added to half of the layer's result.
    """

    images: int = 1
    size: int = 14
    channels: int = 256
    filters: int = 256
    kernel: int = 3
    adds: bool = False

    @property
    def layer(self) -> Layer:
        side = self.kernel // 2
        source = Image(self.images, self.size, self.size, self.channels, BLOCK, Halo(side, side, side, side))
        destination = Image(self.images, self.size, self.size, self.filters, BLOCK)
        window = Window((self.kernel, self.kernel), padding=(side, side))
        return Layer(source, destination, window, destination if self.adds else None)

    @property
    def weights(self) -> NDArray[np.int32]:
        random = np.random.default_rng(self.filters)
        return random.integers(-128, 128, (self.filters, self.kernel, self.kernel, self.channels)).astype(np.int32)

    @property
    def bias(self) -> NDArray[np.int32]:
        """The bias, padded to whole blocks."""
        return np.arange(-(-self.filters // BLOCK) * BLOCK, dtype=np.int32) * 100

    @property
    def epilogue(self) -> Epilogue:
        scale = np.float32(0.3 / np.sqrt(self.kernel**2 * self.channels) / 128)
        scaling = FloatScale(np.full(len(self.bias), scale, np.float32), bounded=True)
        if not self.adds:
            return Epilogue(scaling, Bounds(100, 3, 250))
        addition = ScaledAddition(0.5, 0.5, residual_zero_point=90, residual_is_first=False)
        return Epilogue(scaling, Bounds(7), addition, Bounds(100, 3, 250))

    @property
    def source(self) -> NDArray[np.uint8]:
        """The input images, `[N, H, W, C]`."""
        return np.random.default_rng(1).integers(0, 256, (self.images, self.size, self.size, self.channels), np.uint8)

    @property
    def residual(self) -> NDArray[np.uint8]:
        """The residual, `[N, H, W, O]`."""
        return np.random.default_rng(2).integers(0, 256, (self.images, self.size, self.size, self.filters), np.uint8)

    @property
    def expected(self) -> NDArray[np.uint8]:
        """The output for `source`, padded with zeros, and `residual`: `[N, H, W, O]`."""
        side = self.kernel // 2
        return self.answers(np.pad(self.source, ((0, 0), (side, side), (side, side), (0, 0))), self.residual)

    def answers(self, framed: NDArray[np.uint8], residual: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Computes the output `[N, H, W, O]`: int32 sums are multiplied by the scale, rounded to even, and clamped.

        If `adds`, the residual is added before clamping.

        Args:
            framed: the images with their padding, `[N, H + KH - 1, W + KW - 1, C]`.
        """
        size = self.size
        # Sums stay far below 2^53, so none of them is rounded.
        padded, weights = framed.astype(np.float64), self.weights.astype(np.float64)
        sums = self.bias[: self.filters] + sum(
            padded[:, row : row + size, column : column + size] @ weights[:, row, column].T
            for row in range(self.kernel)
            for column in range(self.kernel)
        )
        requantization = self.epilogue.requantization
        assert isinstance(requantization, FloatScale)
        values = np.rint(sums.astype(np.float32) * requantization.scales[: self.filters]).astype(np.int64)
        bounds, middle, addition = self.epilogue.out, self.epilogue.middle, self.epilogue.addition
        if middle is not None and isinstance(addition, ScaledAddition):
            assert residual is not None
            values = np.clip(values, middle.low - middle.zero_point, middle.high - middle.zero_point)
            others = residual.astype(np.int64) - addition.residual_zero_point
            values = np.rint(addition.factor * values + addition.residual_factor * others).astype(np.int64)  # exact
        return np.clip(values + bounds.zero_point, bounds.low, bounds.high).astype(np.uint8)
