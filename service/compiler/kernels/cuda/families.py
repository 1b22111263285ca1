"""Chooses the GPU kernel for a group of operators. Each family is a class, which declines groups that it cannot
compute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

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
from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.arithmetic.interpolation import blend_of
from service.compiler.kernels.arithmetic.numerics import arithmetic_of, bounds, epilogue_of
from service.compiler.kernels.arithmetic.tables import places
from service.compiler.kernels.choices import Choices
from service.compiler.kernels.cuda.gpus import Gpu
from service.compiler.kernels.cuda.operators import depthwise, pool, resize
from service.compiler.kernels.cuda.operators.concat import check_concat, concat
from service.compiler.kernels.cuda.operators.conv import conv
from service.compiler.kernels.cuda.operators.depthwise import DepthwiseTile
from service.compiler.kernels.cuda.operators.pairs import pairwise
from service.compiler.kernels.cuda.operators.reorder import look_up, unpack
from service.compiler.kernels.cuda.tiles import GpuTile, most_blocks, ranked
from service.compiler.kernels.cuda.types.images import BLOCK, WORD, check_sizes
from service.compiler.kernels.families import Family
from service.compiler.kernels.group import Demand, Group, shape_of, stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer, folded_bias
from service.compiler.kernels.layout import Image
from service.compiler.qnn.numerics import Mode
from service.core.digest import digest_of_json


class CardFamily(Family):
    """The kernels for one type of group on one compute capability."""

    def __init__(self, gpu: Gpu, mode: Mode, choices: Choices | None = None) -> None:
        super().__init__(mode, choices)
        self.card = gpu


class Accumulating(CardFamily):
    """`qnn.conv2d` and `qnn.dense`. The output is requantized (with or without a residual), float32, or the
    accumulators.
    """

    def __init__(self, gpu: Gpu, mode: Mode, choices: Choices | None = None) -> None:
        super().__init__(gpu, mode, choices)
        self._epilogues: dict[Group, AnyEpilogue] = {}

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        check_accumulating(group.core)
        self._epilogue(group)
        return demands_of(group, produced, WORD)

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        core, (source, *residual) = group.core, sources
        layer = Layer(source, destination, window_of(core), residual[0] if residual else None)
        check_sizes(source, destination)
        weights, epilogue, groups = weights_of(core), self._epilogue(group), groups_of(core)
        zero_point = stored_zero_point(core.per_tensor("in_type"))
        bias = folded_bias(bias_of(core), weights, zero_point, destination.blocks * BLOCK)
        key = _key(self.card, layer, epilogue, groups)
        if is_depthwise(core):
            numbers = self.choices.choose(key, [tile.numbers for tile in depthwise.ranked(self.card, layer)])
            kernel = depthwise.depthwise(layer, weights[..., 0], bias, epilogue, DepthwiseTile.of(numbers))
        else:
            reads = _reads(layer, weights.shape)
            numbers = self.choices.choose(key, [tile.numbers for tile in ranked(self.card, layer, reads)])
            tile = GpuTile.of(numbers)
            blocks = most_blocks(self.card, layer, reads, tile)
            kernel = conv(layer, weights, groups, bias, epilogue, tile, blocks)
        self.choices.note(key, numbers, kernel.symbol)
        return kernel

    def _epilogue(self, group: Group) -> AnyEpilogue:
        if group not in self._epilogues:
            filters = shape_of(group.output)[-1]
            self._epilogues[group] = epilogue_of(self.mode, group, -(-filters // BLOCK) * BLOCK)
        return self._epilogues[group]


class Elementwise(CardFamily):
    """Elementwise operators and concatenations of 8-bit images. Such operators do not change the number of rows and
    columns.
    """

    takes_tokens = True

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        check_elementwise(self.mode, group, produced)
        if group.core.name == "qnn.concatenate":
            check_concat(self.mode, group.core)
        elif len(group.inputs) > 1:
            arithmetic_of(self.mode, group.core)
        return [Demand() for _ in group.inputs]

    def places(self, group: Group) -> list[int | None]:
        if group.core.name == "qnn.concatenate":
            return places(BLOCK, self.mode, group.core)
        return super().places(group)

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        if group.core.name == "qnn.concatenate":
            return concat(sources, destination, group.core, self.mode, placed=placed)
        if len(sources) == 1:
            return look_up(sources[0], destination, group.core, self.mode)
        lhs, rhs = sources
        return pairwise(lhs, rhs, destination, group.core, self.mode)


class Dequantizing(CardFamily):
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
        (source,), real = sources, dequantization_of(self.mode, group.core)
        return unpack(source, "float32", real, channels_first=group.channels_first)


class Pooling(CardFamily):
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
        core, (source,) = group.core, sources
        match core.name:
            case "qnn.max_pool2d":
                return pool.max_pool(self.card, source, destination, core)
            case "qnn.avg_pool2d":
                return pool.avg_pool(self.card, source, destination, core, self.mode)
            case _:
                return pool.mean(self.card, source, destination, core, self.mode)


class Resizing(CardFamily):
    """`qnn.resize_bilinear` and `qnn.take_pixels`."""

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        if not all(produced):
            raise Declined("its operand is not the output of a kernel, so it would cost two layout changes")
        bounds(group.out_type)
        if group.core.name == "qnn.resize_bilinear":
            blend_of(self.mode, group.core)
        return [Demand()]

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        core, (source,) = group.core, sources
        if core.name == "qnn.take_pixels":
            return resize.take_pixels(source, destination, core)
        return resize.resize_bilinear(source, destination, core, self.mode)


def _reads(layer: Layer, weights: tuple[int, ...]) -> int:
    """Estimates the number of reduction steps (`Reads`) of a tile of filters."""
    _, rows, columns, channels = weights
    if layer.source.packed:
        return int(rows) * -(-columns * channels // BLOCK)
    return int(rows * columns) * -(-channels // BLOCK)


def _key(gpu: Gpu, layer: Layer, epilogue: AnyEpilogue, groups: int) -> str:
    """Returns a digest of everything that determines the best tile."""
    images = [layer.source, layer.destination, layer.residual]
    geometry = [str(each) for each in (*images, layer.window)]
    return digest_of_json([gpu.capability, *geometry, type(epilogue.requantization).__name__, groups])


FAMILIES: dict[str, Callable[[Gpu, Mode, Choices], Family]] = {
    "qnn.conv2d": Accumulating,
    "qnn.dense": Accumulating,
    "qnn.max_pool2d": Pooling,
    "qnn.avg_pool2d": Pooling,
    "qnn.mean": Pooling,
    "qnn.resize_bilinear": Resizing,
    "qnn.take_pixels": Resizing,
    "qnn.dequantize": Dequantizing,
    **dict.fromkeys(ELEMENTWISE, Elementwise),
}
