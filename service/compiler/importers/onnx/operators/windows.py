"""The geometry of sliding windows (sizes, strides and padding), as ONNX's operator specification defines it for
convolutions and poolings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from service.compiler.importers.builder import pooling
from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.onnx.node import Node
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

Pair = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """The windows along one axis.

    Attributes:
        size: the number of elements.
        before, after: the padding. With `ceil_mode`, an additional last window exists if it would begin inside the
            image or the leading padding.
        named: the padding that the file gives.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    named: Pair

    @property
    def count(self) -> int:
        """The number of windows."""
        return (self.size + self.before + self.after - (self.kernel - 1) * self.dilation - 1) // self.stride + 1


def axes_of(node: Node, sizes: Sequence[int], kernel: Sequence[int]) -> list[Axis]:
    """Returns the windows along each axis, from the attributes `strides`, `dilations`, `pads`, `auto_pad` and
    `ceil_mode`.
    """
    rank = len(sizes)
    strides, dilations = (node.integers_attribute(name, (1,) * rank, 1) for name in ("strides", "dilations"))
    given = node.attribute("kernel_shape", tuple(kernel))
    node.require(given == tuple(kernel), f"has a kernel_shape other than {list(kernel)}")
    found = []
    for size, window, stride, step, named in zip(
        sizes, kernel, strides, dilations, named_sides(node, rank), strict=True
    ):
        found.append(Axis(size, window, stride, step, *sides_of(node, size, window, stride, step, named), named))
    return found


def named_sides(node: Node, rank: int) -> list[Pair]:
    """Returns the padding before and after each axis, from the attribute `pads`."""
    none = (0,) * (2 * rank)
    explicit = node.attribute("auto_pad", "NOTSET") == "NOTSET"
    pads = node.integers_attribute("pads", none, 0) if explicit else none
    return list(zip(pads[:rank], pads[rank:], strict=True))


def sides_of(node: Node, size: int, window: int, stride: int, dilation: int, named: Pair) -> Pair:
    """Returns the padding of an axis."""
    scheme, reach = node.attribute("auto_pad", "NOTSET"), (window - 1) * dilation + 1
    if scheme in ("SAME_UPPER", "SAME_LOWER"):
        total = max(0, (-(-size // stride) - 1) * stride + reach - size)
        less, more = total // 2, total - total // 2
        return (less, more) if scheme == "SAME_UPPER" else (more, less)
    node.require(scheme in ("NOTSET", "VALID"), f"has the unknown auto_pad {scheme}")
    before, after = named
    ceil = "inside" if node.attribute("ceil_mode", 0) else ""
    return before, max(after, pooling.overhang(node, size, reach, stride, before, after, ceil=ceil))


def transposed_sides(node: Node, axes: Sequence[tuple[int, int, int, int]]) -> tuple[list[Pair], list[int]]:
    """Returns, for each axis of a transposed convolution, the numbers of elements that are removed from its result at
    the front and at the end, and the number of elements that are added at the end.

    With `output_shape` or `auto_pad`, the size of the result determines what is removed
    (core/providers/cpu/nn/conv_transpose_attributes.h).

    Args:
        axes: size, kernel, stride and dilation of each axis.
    """
    rank = len(axes)
    more = list(node.integers_attribute("output_padding", (0,) * rank, 0))
    scheme, given = node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape", ())
    node.require(scheme in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"), f"has the unknown auto_pad {scheme}")
    is_shape = all(isinstance(size, int) and size > 0 for size in given) and len(given) in (0, rank, rank + 2)
    node.require(is_shape, f"has the output_shape {list(given)[:8]}")
    if not given and not scheme.startswith("SAME"):
        return named_sides(node, rank), more
    sides = []
    for index, (size, window, stride, dilation) in enumerate(axes):
        wanted = given[len(given) - rank + index] if given else size * stride
        total = (size - 1) * stride + more[index] + (window - 1) * dilation + 1 - wanted
        less, half = max(0, total) // 2, max(0, total) - max(0, total) // 2
        sides.append((less, half) if scheme == "SAME_UPPER" else (half, less))
        if given:
            more[index] += max(0, -total)
    return sides, more


class Windows:
    """A window over images `[N, C, H, W]`, or over rows `[N, C, L]`, which are images of one row.

    Attributes:
        size: height and width of the image.
        channels: C.
        groups: the number of groups of the channels.
        kernel, strides, dilation: each for height and width.
        padding: top, left, bottom, right. With `ceil_mode`, an additional last window exists if it would begin inside
            the image or the leading padding. For a transposed convolution: the rows and columns that are removed from
            the result.
        output_padding: the rows and columns that are added to the result of a transposed convolution, at the bottom and
            on the right.
    """

    def __init__(self, node: Node, weights: int | None = None, *, transposed: bool = False) -> None:
        """`weights` is the input whose last dimensions are the window's size. Without it, the attribute `kernel_shape`
        is the window's size.

        Raises:
            Unsupported: the input has a different number of dimensions.
        """
        shape = node.shape(0)
        if len(shape) not in (3, 4):
            node.unsupported(
                f"has an input of shape {list(shape)}; only [N, C, H, W] and [N, C, L] can be compiled", node.name(0)
            )
        self.node, self._shape, self._rank = node, shape, len(shape) - 2
        self.channels, self.groups = shape[1], node.attribute("group", 1)
        self.size, self.kernel = self._pair(shape[2:], 1), self._kernel(weights)
        self.strides, self.dilation = self._integers("strides"), self._integers("dilations")
        self.output_padding = (0, 0)
        self.padding = self._transposed_padding() if transposed else self._padding()

    def _pair(self, values: tuple[int, ...], first: int) -> Pair:
        """Returns a pair for height and width. For an image of one row, `first` is the value for the height."""
        height, width = (first,) * (2 - self._rank) + tuple(values)
        return height, width

    def _integers(self, name: str) -> Pair:
        return self._pair(self.node.integers_attribute(name, (1,) * self._rank, 1), 1)

    def _kernel(self, weights: int | None) -> Pair:
        node = self.node
        if weights is None:
            node.require("kernel_shape" in node.operator.attributes, "has no kernel_shape")
            return self._integers("kernel_shape")
        shape = node.shape(weights)
        node.require(
            len(shape) == self._rank + 2, f"has weights {list(shape)}, which do not fit its input", node.name(weights)
        )
        window = shape[2:]
        node.require(node.attribute("kernel_shape", window) == window, f"has a kernel_shape other than {list(window)}")
        return self._pair(window, 1)

    def _padding(self) -> tuple[int, int, int, int]:
        each = zip(self.size, self.kernel, self.strides, self.dilation, self.named_padding(), strict=True)
        (top, bottom), (left, right) = (sides_of(self.node, *axis) for axis in each)
        pooling.check_padded(self.node, self._shape[0] * self.channels, self.size, (top, left, bottom, right))
        return top, left, bottom, right

    @property
    def spread(self) -> pooling.Windows:
        """The positions of the windows on `image`, without dilation."""
        return pooling.Windows((2, 3), self.kernel, self.strides, self.padding)

    def _transposed_padding(self) -> tuple[int, int, int, int]:
        first = 2 - self._rank
        axes = zip(self.size[first:], self.kernel[first:], self.strides[first:], self.dilation[first:], strict=True)
        sides, more = transposed_sides(self.node, list(axes))
        self.output_padding = self._pair(tuple(more), 0)
        (top, bottom), (left, right) = [(0, 0)] * first + sides
        return top, left, bottom, right

    def named_padding(self) -> tuple[Pair, Pair]:
        """Returns the padding before and after, for height and width, from the attribute `pads`."""
        rows, columns = [(0, 0)] * (2 - self._rank) + named_sides(self.node, self._rank)
        return rows, columns

    def image(self, x: relax.Expr) -> relax.Expr:
        """Returns `x` in the form `[N, C, H, W]`."""
        n, channels = self._shape[:2]
        return x if self._rank == 2 else self.node.emit(relax.op.reshape(x, (n, channels, *self.size)), "image")

    def restored(self, y: relax.Var) -> relax.Var:
        """Reshapes the result of an image to the number of dimensions that the input has."""
        n, channels, _, width = shape_of(y)
        return y if self._rank == 2 else self.node.emit(relax.op.reshape(y, (n, channels, width)))

    def apply(self, body: Callable[[relax.Var], relax.Expr]) -> relax.Var:
        """Applies `body` to the first input as an image in channels-last layout."""
        return self.restored(in_channels_last(self.node.emit, self.image(self.node.expr(0)), body))

    def filters(self, weights: Array) -> Array:
        """Reshapes filters to `[O, C / groups, KH, KW]`."""
        return weights.reshape(*weights.shape[:2], *self.kernel)

    def check_groups(self, weights: tuple[int, ...]) -> None:
        """Requires that filters `[O, C / groups, …]` fit the channels."""
        groups = self.groups
        self.node.require_supported(
            groups > 0 and self.channels == weights[1] * groups and weights[0] % groups == 0,
            f"has {self.channels} channels, but weights {list(weights)} in {groups} groups",
        )

    def options(self) -> dict[str, Any]:
        """Returns the keyword arguments for the dialect's convolutions."""
        each = {"strides": self.strides, "padding": self.padding, "dilation": self.dilation}
        return {**each, "groups": self.groups}
