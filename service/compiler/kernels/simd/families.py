"""Chooses the kernel for a group of operators. Each family of kernels is a class, which declines groups that it cannot
compute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, fields

from service.compiler.kernels.accumulating import (
    bias_of,
    check_accumulating,
    demands_of,
    groups_of,
    is_depthwise,
    weights_of,
    window_of,
)
from service.compiler.kernels.arithmetic.average import average_of, mean_of
from service.compiler.kernels.arithmetic.conversion import dequantization_of
from service.compiler.kernels.arithmetic.demands import ELEMENTWISE, check_elementwise
from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue, WideEpilogue
from service.compiler.kernels.arithmetic.fused import FusedScale
from service.compiler.kernels.arithmetic.interpolation import blend_of
from service.compiler.kernels.arithmetic.numerics import bounds, epilogue_of
from service.compiler.kernels.arithmetic.tables import places
from service.compiler.kernels.choices import Choices, Numbers
from service.compiler.kernels.families import Family
from service.compiler.kernels.group import Demand, Group, shape_of, stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer, folded_bias
from service.compiler.kernels.layout import Image
from service.compiler.kernels.simd.convolution import depthwise
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.convolution.conv import conv
from service.compiler.kernels.simd.convolution.grouped import Grouping, Scheme, grouped
from service.compiler.kernels.simd.convolution.grouped import ranked as ranked_schemes
from service.compiler.kernels.simd.convolution.matrix import matrix
from service.compiler.kernels.simd.convolution.matrix_schemes import Scheme as MatrixScheme
from service.compiler.kernels.simd.convolution.matrix_schemes import ranked as ranked_schemes_of_matrix
from service.compiler.kernels.simd.convolution.tiles import cycles, key_of, ranked
from service.compiler.kernels.simd.images import concat, elementwise, pixels, pool, resize
from service.compiler.kernels.simd.memory import reorder
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.compiler.qnn.expressions.requantization import BiasedScale, DequantizedScale, FloatScale
from service.compiler.qnn.numerics import Mode


class SimdFamily(Family):
    """The kernels for one type of group on one instruction set."""

    def __init__(self, isa: Isa, mode: Mode, choices: Choices | None = None) -> None:
        super().__init__(mode, choices)
        self.isa = isa


class Accumulating(SimdFamily):
    """`qnn.conv2d` and `qnn.dense`. The output is requantized (with or without a residual), float32, or the
    accumulators.
    """

    def __init__(self, isa: Isa, mode: Mode, choices: Choices | None = None) -> None:
        super().__init__(isa, mode, choices)
        self._epilogues: dict[Group, AnyEpilogue] = {}

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        check_accumulating(group.core)
        self._epilogue(group)
        return demands_of(group, produced, self.isa.group)

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        core, (source, *residual) = group.core, sources
        layer = Layer(source, destination, window_of(core), residual[0] if residual else None)
        weights, epilogue = weights_of(core), self._epilogue(group)
        zero_point = stored_zero_point(core.per_tensor("in_type")) - self.isa.operand_zero_point
        folded = folded_bias(bias_of(core), weights, zero_point, destination.blocks * self.isa.lanes)
        isa, groups, epilogue_cycles = self.isa, groups_of(core), _epilogue_cycles(self.isa, epilogue)
        operands = folded, epilogue
        layer = layer if is_depthwise(core) else layer.stacked
        lengths = [] if group.length is None or not layer.flat else group.length.lengths(layer.output[1])
        key = key_of(isa, layer, epilogue_cycles, groups, lengths)
        # The estimate for the best tile decides if threads share the work. If each tile decided for itself, tuning
        # would compare tiles that run on different numbers of threads.
        if is_depthwise(core):
            numbers = self.choices.choose(key, [astuple(tile) for tile in depthwise.ranked(isa, layer)])
            parallel = worth_sharing(isa, destination.own_bytes / isa.bytes * weights[0].size)
            kernel = depthwise.depthwise(isa, layer, weights[..., 0], *operands, Tile(*numbers), parallel=parallel)
        elif groups > 1:
            grouping = Grouping.of(weights, groups)
            schemes, estimated = ranked_schemes(isa, layer, grouping, epilogue_cycles)
            numbers = self.choices.choose(key, [scheme.numbers for scheme in schemes])
            parallel = worth_sharing(isa, estimated)
            kernel = grouped(isa, layer, grouping, weights, *operands, Scheme.of(numbers), parallel=parallel)
        else:
            ordinary, estimated = _ordinary(isa, layer, epilogue_cycles, lengths)
            numbers = self.choices.choose(key, ordinary)
            parallel, on_tiles = worth_sharing(isa, estimated), len(numbers) != len(fields(Tile))
            if on_tiles:
                kernel = matrix(isa, layer, weights, *operands, MatrixScheme.of(numbers), parallel=parallel)
            else:
                kernel = conv(isa, layer, weights, *operands, Tile(*numbers), parallel=parallel)
        self.choices.note(key, numbers, kernel.symbol)
        return kernel

    def _epilogue(self, group: Group) -> AnyEpilogue:
        if group not in self._epilogues:
            filters = shape_of(group.output)[-1]
            self._epilogues[group] = epilogue_of(self.mode, group, -(-filters // self.isa.lanes) * self.isa.lanes)
        return self._epilogues[group]


def _ordinary(isa: Isa, layer: Layer, epilogue_cycles: float, lengths: Sequence[int]) -> tuple[list[Numbers], float]:
    """Returns the tiles and schemes for a convolution without groups, the fastest first, and the first one's cycles."""
    tiles = ranked(isa, layer, epilogue_cycles, lengths)
    least = cycles(isa, layer, tiles[0], epilogue_cycles)
    of_vectors: list[Numbers] = [astuple(tile) for tile in tiles]
    if isa.matrix is None:
        return of_vectors, least
    schemes = ranked_schemes_of_matrix(isa, layer, epilogue_cycles, lengths)
    of_tiles = [scheme.numbers for _, scheme in schemes]
    if not schemes or schemes[0][0] > isa.matrix.rates.vector * least:
        return of_vectors + of_tiles, least
    return of_tiles + of_vectors, schemes[0][0]


def _epilogue_cycles(isa: Isa, epilogue: AnyEpilogue) -> float:
    """Returns the cycles of an epilogue for one vector of accumulators."""
    rates = isa.rates.epilogue
    if isinstance(epilogue, WideEpilogue):
        return rates.wide
    match epilogue.requantization:
        case FloatScale() | BiasedScale() | DequantizedScale():
            own = rates.float_scale
        case FusedScale(exceptions=exceptions):
            own = rates.float_scale + rates.exception * len(exceptions)
        case _:
            own = rates.fixed_point
    return own + (rates.residual if epilogue.addition else 0)


class Elementwise(SimdFamily):
    """Elementwise operators and concatenations of 8-bit images. Such operators do not change the number of rows and
    columns.
    """

    takes_tokens = True

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        check_elementwise(self.mode, group, produced)
        return [Demand() for _ in group.inputs]

    def places(self, group: Group) -> list[int | None]:
        if group.core.name == "qnn.concatenate":
            return places(self.isa.lanes, self.mode, group.core)
        return super().places(group)

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        core, isa, mode = group.core, self.isa, self.mode
        parallel = worth_sharing(isa, isa.rates.elementwise * destination.own_bytes / isa.bytes)
        if core.name == "qnn.concatenate":
            return concat.concat(isa, sources, destination, core, mode, placed=placed, parallel=parallel)
        if len(sources) == 1:
            return elementwise.look_up(isa, sources[0], destination, core, mode, parallel=parallel)
        return elementwise.pairwise(isa, sources[0], sources[1], destination, core, mode, parallel=parallel)


class Pooling(SimdFamily):
    """Pooling over rows and columns. Windows are clipped to the image, so they need no halo."""

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        bounds(group.core.per_tensor("in_type"))
        bounds(group.out_type)
        match group.core.name:
            case "qnn.avg_pool2d":
                average_of(self.mode, group.core)
            case "qnn.mean":
                mean_of(self.mode, group.core)
        return [Demand()]

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        core, isa, (source,) = group.core, self.isa, sources
        parallel = worth_sharing(isa, isa.rates.elementwise * source.own_bytes / isa.bytes)
        match core.name:
            case "qnn.max_pool2d":
                return pool.max_pool(isa, source, destination, core, parallel=parallel)
            case "qnn.avg_pool2d":
                return pool.avg_pool(isa, source, destination, core, self.mode, parallel=parallel)
            case _:
                return pool.mean(isa, source, destination, core, self.mode, parallel=parallel)


class Resizing(SimdFamily):
    """`qnn.resize_bilinear`."""

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        if not all(produced):
            raise Declined("its operand is not the output of a kernel, so it would cost two layout changes")
        bounds(group.out_type)
        blend_of(self.mode, group.core)
        return [Demand()]

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        (source,) = sources
        parallel = worth_sharing(self.isa, self.isa.rates.resize * destination.own_bytes / self.isa.bytes)
        return resize.resize_bilinear(self.isa, source, destination, group.core, self.mode, parallel=parallel)


class Taking(SimdFamily):
    """`qnn.take_pixels`."""

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        if not all(produced):
            raise Declined("its operand is not the output of a kernel, so it would cost two layout changes")
        bounds(group.out_type)
        return [Demand()]

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        (source,) = sources
        parallel = worth_sharing(self.isa, destination.own_bytes / self.isa.lanes)
        return pixels.take_pixels(self.isa, source, destination, group.core, parallel=parallel)


class Dequantizing(SimdFamily):
    """`qnn.dequantize` of the output of a kernel, which also converts the image to a contiguous tensor."""

    takes_tokens = True

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        if not all(produced):
            raise Declined("its operand is not the output of a kernel")
        dequantization_of(self.mode, group.core)
        return [Demand()]

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        (source,) = sources
        parallel = worth_sharing(self.isa, self.isa.rates.elementwise * source.own_bytes / self.isa.bytes)
        real, first = dequantization_of(self.mode, group.core), group.channels_first
        return reorder.unpack(self.isa, source, "float32", real, channels_first=first, parallel=parallel)


FAMILIES: dict[str, Callable[[Isa, Mode, Choices], Family]] = {
    "qnn.conv2d": Accumulating,
    "qnn.dense": Accumulating,
    "qnn.max_pool2d": Pooling,
    "qnn.avg_pool2d": Pooling,
    "qnn.mean": Pooling,
    "qnn.dequantize": Dequantizing,
    "qnn.resize_bilinear": Resizing,
    "qnn.take_pixels": Taking,
    **dict.fromkeys(ELEMENTWISE, Elementwise),
}
