"""Random TFLite models of one arithmetic operator. The operator's name selects the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.tflite_builder import Quant
from tests.support.tflite_movement import Make, Random, shape_of
from tests.support.tflite_operator import Constant, End, ints, operator_model

_VALUES = 256


def quant(rng: Random, dtype: type, scale: float | None = None) -> Quant:
    """Draws a scale from a range of two decades, and any zero point, which is often at an end of the range."""
    limits = np.iinfo(dtype)
    point = int(rng.choice([limits.min, limits.max, int(rng.integers(limits.min, limits.max))]))
    return Quant(float(np.float32(scale or 10 ** rng.uniform(-2.5, -0.5))), point)


def binary(name: str, options: Callable[[], Any], *, activated: bool = False, one_type: bool = False) -> Make:
    """Returns a function that writes models with all pairs of stored values at random scales, with broadcast shapes, or
    with a constant.
    """

    def make(rng: Random, dtype: type) -> bytes:
        if rng.integers(2):
            shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((_VALUES, 1), (1, _VALUES))
        else:
            whole = shape_of(rng, 4)
            shapes = whole, tuple(1 if rng.integers(2) else size for size in whole)[int(rng.integers(3)) :]
            shapes = shapes if rng.integers(2) else shapes[::-1]
        types = [quant(rng, dtype)] * 3 if one_type else [quant(rng, dtype) for _ in range(3)]
        chosen = options()
        if activated:
            chosen.fusedActivationFunction = int(rng.choice([0, 0, 3]))
            types[2] = Quant(types[2].scales, int(rng.integers(20, 60)))
        inputs: list[End | Constant] = [End(shape, dtype, each) for shape, each in zip(shapes, types, strict=False)]
        if rng.integers(3) == 0:
            inputs[1] = Constant(_stored(rng, shapes[1], dtype), types[1])
        return operator_model(name, inputs, [End(np.broadcast_shapes(*shapes), dtype, types[2])], chosen)

    return make


def _stored(rng: Random, shape: tuple[int, ...], dtype: type) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def _prelu(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng, 4)
    alpha = Constant(_stored(rng, (1, 1, shape[3]), dtype), quant(rng, dtype))
    return operator_model(
        "PRELU", [End(shape, dtype, quant(rng, dtype)), alpha], [End(shape, dtype, quant(rng, dtype))]
    )


def comparison(name: str, options: Callable[[], Any]) -> Make:
    def make(rng: Random, dtype: type) -> bytes:
        inputs = [End((_VALUES, 1), dtype, quant(rng, dtype)), End((1, _VALUES), dtype, quant(rng, dtype))]
        return operator_model(name, inputs, [End((_VALUES, _VALUES), np.bool_)], options())

    return make


def reduction(name: str, *, one_type: bool) -> Make:
    def make(rng: Random, dtype: type) -> bytes:
        shape = shape_of(rng, int(rng.integers(2, 5)), most=9)
        axes = rng.choice(len(shape), int(rng.integers(1, len(shape) + 1)), replace=False)
        keep_dims = bool(rng.integers(2))
        made = np.zeros(shape).sum(axis=tuple(axes.tolist()), keepdims=keep_dims).shape
        x = quant(rng, dtype)
        y = x if one_type or rng.integers(3) == 0 else quant(rng, dtype)
        named = [int(axis - len(shape)) if rng.integers(2) else int(axis) for axis in axes]
        inputs: list[End | Constant] = [End(shape, dtype, x), ints(*named)]
        return operator_model(name, inputs, [End(made, dtype, y)], schema.ReducerOptionsT(keepDims=keep_dims))

    return make


def _place(name: str, options: Callable[..., Any]) -> Make:
    def make(rng: Random, dtype: type) -> bytes:
        shape = shape_of(rng, int(rng.integers(2, 5)), most=9)
        axis = int(rng.integers(-len(shape), len(shape)))
        made = np.empty(shape).argmax(axis).shape
        wide = bool(rng.integers(2))
        chosen = options(outputType=schema.TensorType.INT64 if wide else schema.TensorType.INT32)
        inputs: list[End | Constant] = [End(shape, dtype, quant(rng, dtype)), Constant(np.array(axis, np.int32))]
        return operator_model(name, inputs, [End(made, np.int64 if wide else np.int32)], chosen)

    return make


def _l2_normalization(rng: Random, dtype: type) -> bytes:
    shape = (*shape_of(rng, int(rng.integers(1, 3))), int(rng.integers(1, 60)))
    y = Quant(1 / 128, 0 if np.dtype(dtype).name == "int8" else 128)
    return operator_model(
        "L2_NORMALIZATION", [End(shape, dtype, quant(rng, dtype))], [End(shape, dtype, y)], schema.L2NormOptionsT()
    )


def _resize_bilinear(rng: Random, dtype: type) -> bytes:
    n, h, w, c = shape_of(rng, 4, 8)
    size, x = rng.integers(1, 20, 2).tolist(), quant(rng, dtype)
    corners = bool(rng.integers(2))
    options = schema.ResizeBilinearOptionsT(
        alignCorners=corners, halfPixelCenters=not corners and bool(rng.integers(2))
    )
    return operator_model(
        "RESIZE_BILINEAR", [End((n, h, w, c), dtype, x), ints(*size)], [End((n, *size, c), dtype, x)], options
    )


def _select(rng: Random, dtype: type) -> bytes:
    shape, x = shape_of(rng, 4), quant(rng, dtype)
    whole = bool(rng.integers(2))
    inputs = [End(shape if whole else shape[:1], np.bool_), End(shape, dtype, x), End(shape, dtype, x)]
    return operator_model("SELECT", inputs, [End(shape, dtype, x)], schema.SelectOptionsT())


def _select_v2(rng: Random, dtype: type) -> bytes:
    shape, x = shape_of(rng, 4), quant(rng, dtype)
    some = tuple(1 if rng.integers(2) else size for size in shape)
    inputs = [End(some, np.bool_), End(shape, dtype, x), End(shape if rng.integers(2) else (1,), dtype, x)]
    return operator_model("SELECT_V2", inputs, [End(shape, dtype, x)], schema.SelectV2OptionsT())


def _cast(rng: Random, dtype: type) -> bytes:
    shape = shape_of(rng)
    kinds = (("int32", schema.TensorType.INT32), ("float32", schema.TensorType.FLOAT32))
    target, kind = kinds[int(rng.integers(2))]
    options = schema.CastOptionsT(outDataType=kind)
    return operator_model("CAST", [End(shape, dtype, quant(rng, dtype))], [End(shape, target)], options)


def _batch_matmul(rng: Random, dtype: type) -> bytes:
    m, k, n = (int(size) for size in rng.integers(1, 12, 3))
    batches = (2, 3), [(2, 3), (3,), (1, 3), ()][int(rng.integers(4))]
    adjoint = bool(rng.integers(2)), bool(rng.integers(2))
    shapes = (k, m) if adjoint[0] else (m, k), (n, k) if adjoint[1] else (k, n)
    inputs: list[End | Constant] = [
        End((*batch, *shape), dtype, quant(rng, dtype)) for batch, shape in zip(batches, shapes, strict=True)
    ]
    if rng.integers(2):
        inputs[1] = Constant(_stored(rng, (*batches[1], *shapes[1]), dtype), quant(rng, dtype))
    options = schema.BatchMatMulOptionsT(adjX=adjoint[0], adjY=adjoint[1])
    return operator_model("BATCH_MATMUL", inputs, [End((2, 3, m, n), dtype, quant(rng, dtype, 3.0))], options)


INT8_ONLY = (
    "BATCH_MATMUL",
    "SQUARED_DIFFERENCE",
)
ARITHMETIC: dict[str, Make] = {
    "ADD": binary("ADD", schema.AddOptionsT, activated=True),
    "ARG_MAX": _place("ARG_MAX", schema.ArgMaxOptionsT),
    "ARG_MIN": _place("ARG_MIN", schema.ArgMinOptionsT),
    "BATCH_MATMUL": _batch_matmul,
    "CAST": _cast,
    "EQUAL": comparison("EQUAL", schema.EqualOptionsT),
    "GREATER": comparison("GREATER", schema.GreaterOptionsT),
    "GREATER_EQUAL": comparison("GREATER_EQUAL", schema.GreaterEqualOptionsT),
    "L2_NORMALIZATION": _l2_normalization,
    "LESS": comparison("LESS", schema.LessOptionsT),
    "LESS_EQUAL": comparison("LESS_EQUAL", schema.LessEqualOptionsT),
    "MAXIMUM": binary("MAXIMUM", schema.MaximumMinimumOptionsT, one_type=True),
    "MEAN": reduction("MEAN", one_type=False),
    "MINIMUM": binary("MINIMUM", schema.MaximumMinimumOptionsT, one_type=True),
    "MUL": binary("MUL", schema.MulOptionsT, activated=True),
    "NOT_EQUAL": comparison("NOT_EQUAL", schema.NotEqualOptionsT),
    "PRELU": _prelu,
    "REDUCE_MAX": reduction("REDUCE_MAX", one_type=True),
    "REDUCE_MIN": reduction("REDUCE_MIN", one_type=True),
    "RESIZE_BILINEAR": _resize_bilinear,
    "SELECT": _select,
    "SELECT_V2": _select_v2,
    "SQUARED_DIFFERENCE": binary("SQUARED_DIFFERENCE", schema.SquaredDifferenceOptionsT),
    "SUB": binary("SUB", schema.SubOptionsT, activated=True),
    "SUM": reduction("SUM", one_type=False),
}
