"""Finds composites on pictures: pools and resizing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from tvm import relax

from service.compiler.importers.builder.pooling import Sides, Windows, average, largest
from service.compiler.importers.resizing import PLACES, bilinear
from service.compiler.importers.tflite.operators.selection import nearest_places
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.operation import value_of
from service.core.models.arrays import Array
from service.quantize.export.composite import Composite, Write
from service.quantize.export.definitions import Definitions
from service.quantize.export.graph import CHANNELS_FIRST, Graph, Order, identity, rank_of

_MOST_PLACES = 1 << 9  # limit of the elements in a window that is recognized
_IMAGES = ((1, 2), (2, 3))  # the possible positions of the axes of rows and columns
_CORNERS = ("half_pixel", "align_corners", "asymmetric")


def max_pool(definitions: Definitions, var: relax.Var) -> Composite | None:
    for kind, windows in _windows_near(definitions, var, "maximum"):
        x = definitions.operand(var, kind, partial(largest, windows=windows))
        if x is not None:
            return Composite(x, _pool_writer(x, windows, "MaxPool"))
    return None


def average_pool(definitions: Definitions, var: relax.Var) -> Composite | None:
    divided = definitions.of(definitions.of(var).args[0])
    if not definitions.is_call(divided, "divide"):
        return None
    for kind, windows in _windows_near(definitions, divided.args[0], "add"):
        for counted in dict.fromkeys(((0, 0, 0, 0), windows.padding)):
            x = definitions.operand(var, kind, partial(average, windows=windows, counted=counted))
            if x is not None:
                whole = int(any(counted))
                return Composite(x, _pool_writer(x, windows, "AveragePool", count_include_pad=whole))
    return None


def _pool_writer(x: relax.Var, windows: Windows, op_type: str, **attributes: int) -> Write:
    def write(graph: Graph, var: relax.Var) -> None:
        order = _order(windows.axes)
        sizes = {"kernel_shape": windows.size, "strides": windows.strides, "pads": windows.padding}
        graph.put(var, op_type, [graph.tensor(x, order)], order, **sizes, **attributes)

    return write


def _windows_near(
    definitions: Definitions, end: relax.Expr, combine: str
) -> Iterator[tuple[relax.TensorType, Windows]]:
    """Yields possible windows: those whose elements `combine` joins one after the other. Also yields the type of the
    picture.
    """
    last: relax.Call | None = None
    inner, positions = definitions.of(end), 1
    while definitions.is_call(inner, combine) and positions < _MOST_PLACES:
        last = definitions.of(inner.args[1]) if last is None else last
        inner, positions = definitions.of(inner.args[0]), positions + 1
    if last is None or not all(definitions.is_call(each, "strided_slice") for each in (inner, last)):
        return
    axes, begin, _, strides = (tuple(int(field.value) for field in arg.fields) for arg in last.args[1:5])
    if axes not in _IMAGES:
        return
    size, source, padding = (begin[0] + 1, begin[1] + 1), last.args[0], (0, 0, 0, 0)
    if definitions.is_call(source, "nn.pad"):
        padding, source = _sides(definitions.of(source), axes[0]), definitions.of(source).args[0]
    if definitions.is_call(source, "astype"):
        source = definitions.of(source).args[0]
    if isinstance(source, relax.Var) and rank_of(source) == 4:
        yield source.ty, Windows((axes[0], axes[1]), size, (strides[0], strides[1]), padding)


def _sides(pad: relax.Call, rows: int) -> Sides:
    widths = [int(width) for width in pad.attrs.pad_width]
    top, bottom, before, after = widths[2 * rows : 2 * rows + 4]
    return top, before, bottom, after


def interpolated(definitions: Definitions, var: relax.Var) -> Composite | None:
    """Finds a resize that interpolates between four elements."""
    if not definitions.is_near(var, "take"):
        return None
    for kind in definitions.types_near(var):
        before, after = tuple(int(dim) for dim in kind.shape), shape_of(var)
        for axes in _IMAGES if len(before) == len(after) == 4 else ():
            for corners in _CORNERS:
                positions = [_places(corners, before[axis], after[axis]) for axis in axes]
                x = definitions.operand(var, kind, partial(bilinear, axes=axes, positions=positions))
                if x is not None:
                    return Composite(x, _resize_writer(x, axes, mode="linear", corners=corners))
    return None


def _places(corners: str, before: int, after: int) -> Array:
    return PLACES[corners](np.arange(after, dtype=np.float32), np.float32(after) / np.float32(before), before, after)


def nearest(definitions: Definitions, var: relax.Var) -> Composite | None:
    """Finds a resize that repeats or drops rows and columns, in any of TFLite's three ways."""
    columns = definitions.of(var)
    rows = definitions.of(columns.args[0])
    if not definitions.is_call(rows, "take") or rank_of(var) != 4:
        return None
    x, axes = rows.args[0], (int(rows.attrs.axis), int(columns.attrs.axis))
    if axes not in _IMAGES or not isinstance(x, relax.Var):
        return None
    taken = [value_of(call.args[1]) for call in (rows, columns)]
    sizes = [(shape_of(x)[axis], shape_of(var)[axis]) for axis in axes]
    for corners, rounding in (("asymmetric", "floor"), ("align_corners", "round_prefer_ceil")):
        wanted = [
            nearest_places(*pair, align_corners=corners == "align_corners", half_pixel_centers=False) for pair in sizes
        ]
        if all(np.array_equal(one, other) for one, other in zip(taken, wanted, strict=True) if one is not None):
            return Composite(x, _resize_writer(x, axes, mode="nearest", corners=corners, nearest_mode=rounding))
    return None


def _resize_writer(x: relax.Var, axes: tuple[int, int], *, corners: str, **attributes: str) -> Write:
    def write(graph: Graph, var: relax.Var) -> None:
        order = _order(axes)
        sizes = graph.integers([shape_of(var)[axis] for axis in order])
        settings = {"coordinate_transformation_mode": corners, **attributes}
        graph.put(var, "Resize", [graph.tensor(x, order), "", "", sizes], order, **settings)

    return write


def _order(axes: tuple[int, ...]) -> Order:
    """Returns the order of axes `[N, C, H, W]`, given the axes of rows and columns."""
    return CHANNELS_FIRST if axes == (1, 2) else identity(4)
