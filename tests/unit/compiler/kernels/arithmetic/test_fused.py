"""Requantization by one fused multiply-add equals TFLite's requantization for every accumulator, or is not used."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.kernels.arithmetic.epilogue import Bounds, Epilogue
from service.compiler.kernels.arithmetic.fused import MOST_EXCEPTIONS, FixedPoint, fused_scale
from service.compiler.kernels.arithmetic.requantization import CENTRE, DoubleRounding, FusedScale, SingleRounding
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Image
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.convolution.conv import conv
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics.scaling import fixed_point
from service.core.models.arrays import Array
from tests.support.examples import examples
from tests.support.images import RUNNABLE, read_back, run

EXAMPLES = settings(max_examples=examples(40), deadline=None)
RELU, SIGNED = Bounds(0), Bounds(100)


class Channels:
    """The channels of one layer. Each has a multiplier and a range of accumulators."""

    def __init__(self, multipliers: Array, shifts: Array, reach: int, out: Bounds, *, twice: bool) -> None:
        self.significands, self.shifts, self.out, self.twice = multipliers, shifts, out, twice
        self.smallest = np.full(len(shifts), -reach, np.int64)
        self.largest = np.full(len(shifts), reach - 1, np.int64)
        furthest = np.maximum(self.largest, -self.smallest)
        self.fixed = (
            FixedPoint.rounded_twice(multipliers, shifts)
            if twice
            else FixedPoint.rounded_once(multipliers, shifts, furthest)
        )

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


OUTS = st.sampled_from([RELU, SIGNED, Bounds(0, 0, 200), Bounds(128, 20, 225), Bounds(255), Bounds(7)])


@EXAMPLES
@given(st.integers(0, 10**6), st.integers(-12, 0), OUTS, st.sampled_from([1 << 10, 1 << 20, 1 << 26]), st.data())
def test_a_fused_scale_equals_the_oracle(seed: int, shift: int, out: Bounds, reach: int, data: st.DataObject) -> None:
    twice, stored = data.draw(st.booleans()), data.draw(st.booleans())
    channels = Channels.drawn(seed, (shift - 1, shift), out, reach=reach, twice=twice)
    fused = channels.fused(stored=stored)
    if fused is None:
        return
    assert stored or not fused.centred
    for channel in (0, 7, *(int(np.argmax(wrong != right)) for wrong, right in fused.exceptions)):
        accumulators = channels.telling(channel)
        found = [computed(fused, channel, int(each), out) for each in accumulators]
        np.testing.assert_array_equal(found, channels.expected(channel, accumulators))


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


def test_each_variant_of_the_code_occurs() -> None:
    ways = [(False, True), (False, False), (True, False)]
    assert set(KINDS) == {(*way, exceptions) for way in ways for exceptions in range(MOST_EXCEPTIONS + 1)}


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("isa", RUNNABLE, ids=[isa.name for isa in RUNNABLE])
@pytest.mark.parametrize("pixels", [1, 4])
def test_the_instructions_equal_the_oracle(isa: Isa, pixels: int) -> None:
    for channels, fused in KINDS.values():
        of, _ = told(channels)
        one_each = FusedScale(
            fused.scales[of],
            fused.offsets[of],
            fused.starts[of],
            tuple((wrong[of], right[of]) for wrong, right in fused.exceptions),
            fused.mirrored,
            fused.centred,
        )
        epilogue = Epilogue(one_each.filled(-(-len(of) // isa.lanes) * isa.lanes), channels.out)
        holds(isa, epilogue, channels, pixels)


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("isa", RUNNABLE, ids=[isa.name for isa in RUNNABLE])
@pytest.mark.parametrize("kind", ["twice", "twice, of large accumulators", "once"])
def test_layers_without_a_fused_scale_equal_the_oracle(isa: Isa, kind: str) -> None:
    channels = Channels.drawn(0, (-9, -3), SIGNED, twice=kind != "once")
    of, _ = told(channels)
    filled = np.pad(of, (0, -len(of) % isa.lanes))
    significands, shifts = channels.significands[filled], channels.shifts[filled]
    bounded = kind == "twice"
    rounding = SingleRounding(significands, shifts) if kind == "once" else DoubleRounding(significands, shifts, bounded)
    holds(isa, Epilogue(rounding, SIGNED), channels, 4)


def told(channels: Channels) -> tuple[Array, Array]:
    """Returns two arrays: channels of a layer, and for each an accumulator of that channel (`Channels.telling`)."""
    pairs = [(channel, each) for channel in (0, 5, 11) for each in channels.telling(channel)]
    of, accumulators = np.array(pairs).T
    return of, accumulators


def holds(isa: Isa, epilogue: Epilogue, channels: Channels, pixels: int) -> None:
    """Compares a kernel with the oracle. The accumulators are the biases of the kernel's channels (`told`)."""
    of, accumulators = told(channels)
    destination = Image(1, 1, pixels, len(of), isa.lanes)
    layer = Layer(Image(1, 1, pixels, 4, isa.lanes), destination, Window((1, 1)))
    bias = np.pad(accumulators, (0, destination.blocks * isa.lanes - len(of)))
    weights = np.zeros((len(of), 1, 1, 4), np.int32)
    kernel = conv(isa, layer, weights, bias, epilogue, Tile(1, pixels, 1), parallel=False)
    image = read_back(destination, run(isa, kernel, np.zeros(layer.source.size_bytes, np.uint8)))
    expected = np.concatenate([channels.expected(channel, channels.telling(channel)) for channel in (0, 5, 11)])
    np.testing.assert_array_equal(image[0, 0, :, : len(of)], np.broadcast_to(expected, (pixels, len(of))))


@pytest.mark.parametrize(("shift", "least"), [(-5, 30), (-8, 28), (-9, 25)])
def test_most_layers_that_end_in_relu_have_a_fused_scale(shift: int, least: int) -> None:
    assert sum(Channels.drawn(seed, (shift, shift), RELU).fused() is not None for seed in range(30)) >= least


def test_large_sums_have_no_fused_scale() -> None:
    """A fused scale would need more than the 24 bits of float32, because each result has 2**14 accumulators."""
    assert all(Channels.drawn(seed, (-14, -14), SIGNED, reach=1 << 22).fused() is None for seed in range(5))


def test_powers_of_two_have_no_fused_scale_if_results_have_two_signs() -> None:
    """Some scaled sums are halfway between two results. TFLite's first rounding rounds these up, whatever their
    sign."""
    powers = np.full(16, 1 << 30), np.full(16, -4)
    assert Channels(*powers, 1 << 16, SIGNED, twice=True).fused() is None
    assert Channels(*powers, 1 << 16, RELU, twice=True).fused() is not None


def test_channels_whose_results_are_all_zero_have_a_fused_scale() -> None:
    rng = np.random.default_rng(0)
    significands, shifts = rng.integers(1 << 30, 1 << 31, 16), np.full(16, -6)
    significands[3], shifts[3] = 0, 0
    shifts[7] = -31
    fused = Channels(significands, shifts, 1 << 16, RELU, twice=True).fused()
    assert fused is not None
    for channel in (3, 7):
        assert {computed(fused, channel, each, RELU) for each in (-(1 << 16), -1, 0, 1, (1 << 16) - 1)} == {0}


def test_sums_that_exceed_int32_have_no_fused_scale() -> None:
    significands, shifts = np.full(16, (1 << 30) + 7), np.full(16, 4)
    assert Channels(significands, shifts, 1 << 20, RELU, twice=False).fused() is not None
    assert Channels(significands, shifts, 1 << 29, RELU, twice=False).fused() is None
