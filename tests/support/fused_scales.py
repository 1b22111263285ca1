"""Compares fused scales of layers with the oracle (`service.compiler.kernels.arithmetic.fused`)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import CENTRE, Bounds, Epilogue
from service.compiler.kernels.arithmetic.fused import FusedScale, fused_scale
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Image
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.convolution.conv import conv
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.requantization import DoubleRounding, Requantization, SingleRounding
from service.compiler.qnn.numerics.scaling import fixed_point
from service.core.models.arrays import Array
from tests.support.images import read_back, run

RELU, SIGNED = Bounds(0), Bounds(100)


class Channels:
    """The channels of one layer. Each has a multiplier and a range of accumulators."""

    def __init__(self, multipliers: Array, shifts: Array, reach: int, out: Bounds, *, twice: bool) -> None:
        self.significands, self.shifts, self.out, self.twice = multipliers, shifts, out, twice
        self.smallest = np.full(len(shifts), -reach, np.int64)
        self.largest = np.full(len(shifts), reach - 1, np.int64)
        rounding: Requantization = DoubleRounding(multipliers, shifts) if twice else SingleRounding(multipliers, shifts)
        fixed = rounding.fixed_point(Facts(self.smallest, self.largest))
        assert fixed is not None
        self.fixed = fixed

    @classmethod
    def drawn(cls, seed: int, shifts: tuple[int, int], out: Bounds, *, reach: int = 1 << 20, twice: bool = True):  # type: ignore[no-untyped-def]
        rng = np.random.default_rng(seed)
        significands = rng.integers(1 << 30, 1 << 31, 16)
        if not twice:
            significands[::4] &= -1 << 27  # some accumulators are then scaled to a number halfway between two integers
        return cls(significands, rng.integers(*shifts, 16, endpoint=True), reach, out, twice=twice)

    def fused(self, *, stored: bool = True) -> FusedScale | None:
        return fused_scale(self.fixed, self.smallest, self.largest, self.out, stored=stored)

    def expected(self, channel: int, accumulators: Array) -> Array:
        """Returns the oracle's results for accumulators, as stored values."""
        significand, shift = int(self.significands[channel]), int(self.shifts[channel])
        if self.twice:
            scaled = fixed_point.multiply_by_quantized_multiplier(accumulators, significand, shift)
        else:
            scaled = (accumulators * significand + (1 << (30 - shift)) - (accumulators < 0)) >> (31 - shift)
        return np.asarray(np.clip(scaled + self.out.zero_point, self.out.low, self.out.high))

    def telling(self, channel: int) -> Array:
        """Returns the accumulators that could show a difference: those around every boundary, both ends, and random
        ones."""
        scale = float(self.fixed.scales[channel])
        results = np.arange(self.out.low - 2, self.out.high + 2) + 0.5 - self.out.zero_point
        around = np.rint(results / scale)[:, None] + np.arange(-4, 5)
        rng = np.random.default_rng(channel)
        anywhere = rng.integers(self.smallest[channel], self.largest[channel], 50)
        everything = np.concatenate([around.ravel(), anywhere, [-1, 0, 1], self.smallest[:1], self.largest[:1]])
        kept = (everything >= self.smallest[channel]) & (everything <= self.largest[channel])
        return np.unique(everything[kept]).astype(np.int64)


def float32_of(exact: Fraction) -> np.float32:
    """Returns the nearest float32. If two are equally near, it returns the even one."""
    near = np.float32(float(exact))
    candidates = [near, *(np.nextafter(near, np.float32(towards)) for towards in (-np.inf, np.inf))]
    return min(candidates, key=lambda each: (abs(Fraction(float(each)) - exact), int(each.view(np.int32)) & 1))


def computed(fused: FusedScale, channel: int, accumulator: int, out: Bounds) -> int:
    """Returns the result for one accumulator, computed with fractions and rounded where the instructions round."""
    x = accumulator + int(fused.starts[channel])
    for wrong, right in fused.exceptions:
        if accumulator + int(fused.starts[channel]) == wrong[channel]:
            x = int(right[channel])
    converted, offset = Fraction(float(np.float32(x))), Fraction(float(fused.offsets[channel]))
    if fused.mirrored and converted < 0:
        offset = -offset
    total = float32_of(converted * Fraction(float(fused.scales[channel])) + offset)
    value = int(np.rint(total)) + (CENTRE if fused.centred else out.zero_point)
    return min(max(value, out.low), out.high)


def kinds() -> dict[tuple[bool, bool, int], tuple[Channels, FusedScale]]:
    """Maps each variant of the code (mirrored, centred, number of exceptions) to a layer for which it is generated."""
    found: dict[tuple[bool, bool, int], tuple[Channels, FusedScale]] = {}
    for seed in range(8):
        for shift in (-5, -8, -10):
            for out, stored in ((RELU, True), (RELU, False), (SIGNED, True)):
                channels = Channels.drawn(seed, (shift, shift), out)
                fused = channels.fused(stored=stored)
                if fused is not None:
                    found.setdefault((fused.mirrored, fused.centred, len(fused.exceptions)), (channels, fused))
    return found


KINDS = kinds()


def distinguishing_accumulators(channels: Channels) -> tuple[Array, Array]:
    """Returns two arrays: channels of a layer, and for each an accumulator of that channel (`Channels.telling`)."""
    pairs = [(channel, each) for channel in (0, 5, 11) for each in channels.telling(channel)]
    of, accumulators = np.array(pairs).T
    return of, accumulators


def holds(isa: Isa, epilogue: Epilogue, channels: Channels, pixels: int) -> None:
    """Compares a kernel with the oracle. The biases of its channels are `distinguishing_accumulators`."""
    of, accumulators = distinguishing_accumulators(channels)
    destination = Image(1, 1, pixels, len(of), isa.lanes)
    layer = Layer(Image(1, 1, pixels, 4, isa.lanes), destination, Window((1, 1)))
    bias = np.pad(accumulators, (0, destination.blocks * isa.lanes - len(of)))
    weights = np.zeros((len(of), 1, 1, 4), np.int32)
    kernel = conv(isa, layer, weights, bias, epilogue, Tile(1, pixels, 1), parallel=False)
    image = read_back(destination, run(isa, kernel, np.zeros(layer.source.size_bytes, np.uint8)))
    expected = np.concatenate([channels.expected(channel, channels.telling(channel)) for channel in (0, 5, 11)])
    np.testing.assert_array_equal(image[0, 0, :, : len(of)], np.broadcast_to(expected, (pixels, len(of))))
