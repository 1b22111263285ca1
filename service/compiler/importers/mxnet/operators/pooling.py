"""Pooling (src/operator/quantization/quantized_pooling.cc, src/operator/nn/mkldnn/mkldnn_pooling-inl.h)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import relax

from service.compiler.importers import windows
from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.mxnet.node import Node, Value, edges
from service.compiler.importers.mxnet.scales import steps_per_unit, type_of
from service.compiler.importers.real import Real
from service.compiler.qnn import ops

_Pads = tuple[int, int, int, int]
_MAX_PADDED_ELEMENTS = 1 << 31


@dataclass(frozen=True)
class _Pool:
    """The checked attributes of a pooling of `[N, C, H, W]`.

    Attributes:
        counted: true if the zeros of the padding count in an average.
    """

    kind: str
    window: tuple[int, int]
    strides: tuple[int, int]
    pads: _Pads
    counted: bool

    @staticmethod
    def of(node: Node, shape: tuple[int, ...]) -> _Pool:
        if len(shape) != 4:
            node.unsupported(f"has an input of shape {list(shape)}, not [N, C, H, W]")
        kind, attributes = node.attributes.text("pool_type", "max"), node.attributes
        if kind not in ("max", "avg"):
            node.unsupported(f"has the pool_type {kind!a:.20}; only max and avg can be compiled")
        layout = attributes.text("layout", "NCHW")
        if layout not in ("NCHW", "None"):
            node.unsupported(f"has the layout {layout!a:.20}, not NCHW")
        everything = attributes.flag("global_pool")
        window = (shape[2], shape[3]) if everything else attributes.pair("kernel", (1, 1))
        strides = (1, 1) if everything else attributes.pair("stride", (1, 1))
        pads = (0, 0, 0, 0) if everything else _padding(node, shape[2:], window, strides, kind)
        return _Pool(kind, window, strides, pads, kind == "avg" and attributes.flag("count_include_pad", True))


def pooling(node: Node) -> list[Value]:
    """Pools real values (src/operator/nn/mkldnn/mkldnn_pooling-inl.h). Averages differ from MXNet's by at most a few
    units in the last place.
    """
    node.count(1)
    x = node.tensor(0, "float32")
    found, made = _Pool.of(node, x.shape), Real(node.emit, x.expr)
    if found.window == x.shape[2:] and not any(found.pads):
        whole = relax.op.max(x.expr, [2, 3], True) if found.kind == "max" else made.mean(x.expr, [2, 3])
        return [node.result(node.emit(whole))]
    if math.prod(found.window) > windows.MOST_PLACES:
        node.unsupported(
            f"has windows of {math.prod(found.window)} real values; at most {windows.MOST_PLACES} can be compiled"
        )
    spread = windows.Windows((2, 3), found.window, found.strides, found.pads)
    if found.kind == "max":
        return [node.result(node.emit(windows.largest(made, spread)))]
    return [node.result(node.emit(windows.average(made, spread, found.pads if found.counted else (0, 0, 0, 0))))]


def quantized_pooling(node: Node) -> list[Value]:
    """Pools stored values. The range does not change. MXNet counts the zeros of the padding in an average unless an
    attribute disables this. Here, padding that counts becomes zeros of the image.
    """
    node.count(3)
    x, data = node.tensor(0, "int8", "uint8"), node.range(1)
    found = _Pool.of(node, x.shape)
    quantized = type_of(x.dtype, steps_per_unit(x.dtype, *data))

    def body(image: relax.Var) -> relax.Call:
        own = found.pads
        if found.counted and any(found.pads):
            image, own = node.emit(_padded(image, found.pads), "padded"), (0, 0, 0, 0)
        make = ops.max_pool2d if found.kind == "max" else ops.avg_pool2d
        return make(image, quantized, quantized, pool_size=found.window, strides=found.strides, padding=own)

    return [node.result(in_channels_last(node.emit, x.expr, body)), *edges(*data)]


def _padded(image: relax.Expr, pads: _Pads) -> relax.Call:
    top, left, bottom, right = pads
    return relax.op.nn.pad(image, [0, 0, top, bottom, left, right, 0, 0], pad_value=0)


def _padding(node: Node, image: tuple[int, ...], window: tuple[int, int], strides: tuple[int, int], kind: str) -> _Pads:
    """Returns the padding: top, left, bottom, right. The pooling convention `full` rounds the size of the output up
    (`CalculatePoolingPadding`).
    """
    convention, pads = node.attributes.text("pooling_convention", "valid"), node.attributes.pair("pad", (0, 0), least=0)
    if convention not in ("valid", "full"):
        node.unsupported(f"has the pooling_convention {convention!a:.20}; only valid and full can be compiled")
    after = list(pads)
    for axis, (size, extent, stride, pad) in enumerate(zip(image, window, strides, pads, strict=True)):
        room = size + 2 * pad - extent
        node.require(room >= 0, f"has a window {list(window)} that is larger than its padded image {list(image)}")
        node.require(size + 2 * pad <= _MAX_PADDED_ELEMENTS, f"pads its input by {pad}, which is too large")
        if convention == "full" and room % stride:
            after[axis] += stride - room % stride
    if kind == "avg" and tuple(after) != pads:
        node.unsupported(
            "averages windows that extend beyond the padding (pooling_convention full), which cannot be compiled"
        )
    return pads[0], pads[1], after[0], after[1]
