"""TFLite models of one operator on values that are not quantized, by name, with inputs for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite.geometry import SAME, VALID, output_size
from service.core.models.arrays import Array
from tests.support.tflite_operator import Constant, End, ints, operator_model

F, I8, U8, I16, I32, I64, BOOL = (
    np.dtype(each) for each in (np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_)
)
SHAPE = (2, 3, 4)
RNG = np.random.default_rng(0)
NAN, INF = np.nan, np.inf


Part = End | Constant


@dataclass(frozen=True)
class Case:
    """A model of one operator.

    Attributes:
        samples: the inputs of each call; None for random inputs.
    """

    operator: str
    inputs: Sequence[Part]
    outputs: Sequence[End]
    options: Any = None
    samples: Sequence[Sequence[Array]] | None = None
    version: int = 1

    def model(self) -> bytes:
        return operator_model(self.operator, self.inputs, self.outputs, self.options, self.version)


def constant(value: Any, dtype: npt.DTypeLike) -> Constant:
    return Constant(np.array(value, dtype))


def array(value: Any, dtype: npt.DTypeLike) -> Array:
    return np.array(value, dtype)


def whole(low: int, high: int, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
    return RNG.integers(low, high, shape).astype(dtype)


def real(*shape: int) -> Array:
    return RNG.normal(0, 2, shape).astype(np.float32)


def elementwise(operator: str, dtype: np.dtype[Any], options: Any = None, **others: Any) -> Case:
    """Returns an operator with one operand of `SHAPE`."""
    return Case(operator, [End(SHAPE, dtype)], [End(SHAPE, dtype)], options, **others)


def binary(operator: str, dtype: np.dtype[Any], result: np.dtype[Any] | None = None, **others: Any) -> Case:
    """Returns an operator whose second operand broadcasts."""
    return Case(operator, [End(SHAPE, dtype), End((4,), dtype)], [End(SHAPE, result or dtype)], **others)


def small(dtype: npt.DTypeLike, low: int = -40, high: int = 40) -> list[list[Array]]:
    """Returns the operands of a `binary` operator: integers, the second one not zero."""
    divisor = whole(1, high, (4,), dtype)
    return [[whole(low, high, SHAPE, dtype), divisor if np.dtype(dtype).kind in "ub" else divisor * array(-1, dtype)]]


ANGLES = np.meshgrid(*[array([0.0, -0.0, 1, -1, INF, -INF], F)] * 2)
CUMSUM = [schema.CumsumOptionsT(exclusive=one, reverse=other) for one in (False, True) for other in (False, True)]
POOL = schema.Pool2DOptionsT(strideH=2, strideW=2, filterHeight=3, filterWidth=3, padding=0)
LRN, FAKE = schema.LocalResponseNormalizationOptionsT, schema.FakeQuantOptionsT
RELATIONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
KEEP, DROP = schema.ReducerOptionsT(keepDims=True), schema.ReducerOptionsT(keepDims=False)
NUMBERS = [array([1, NAN, 2, -0.0], F), array([1, NAN, 3, 0.0], F)]

FUNCTIONS: dict[str, Case] = {
    **{f"{name} float32": elementwise(name, F) for name in ("SQUARE", "SIGN", "SIN", "COS", "LOG_SOFTMAX", "ABS")},
    "SIGN int32": elementwise("SIGN", I32),
    "SIGN special": Case("SIGN", [End((5,), F)], [End((5,), F)], None, [[array([NAN, -0.0, 0, INF, -INF], F)]]),
    "ABS int32": elementwise("ABS", I32),
    "POW float32": Case("POW", [End(SHAPE, F)] * 2, [End(SHAPE, F)], None, [[np.abs(real(*SHAPE)), real(*SHAPE)]]),
    "POW scalar": Case("POW", [End(SHAPE, F), constant(2.0, F)], [End(SHAPE, F)]),
    "POW int32 constant": Case("POW", [End(SHAPE, I32), constant([0, 1, 2, 5], I32)], [End(SHAPE, I32)]),
    "POW int32": binary("POW", I32, samples=[[whole(-9, 9, SHAPE, I32), array([0, 1, 3, 31], I32)]]),
    "ATAN2": Case("ATAN2", [End(SHAPE, F)] * 2, [End(SHAPE, F)]),
    "ATAN2 special": Case("ATAN2", [End((6, 6), F)] * 2, [End((6, 6), F)], None, [ANGLES]),
    "ADD_N float32": Case("ADD_N", [End(SHAPE, F)] * 3, [End(SHAPE, F)]),
    "ADD_N int32": Case("ADD_N", [End(SHAPE, I32)] * 2, [End(SHAPE, I32)]),
    **{
        f"CUMSUM {dtype} {index}": Case("CUMSUM", [End(SHAPE, dtype), constant(-2, I32)], [End(SHAPE, dtype)], options)
        for dtype in (F, I32, I64)
        for index, options in enumerate(CUMSUM)
    },
    "L2_POOL_2D": Case("L2_POOL_2D", [End((1, 6, 6, 3), F)], [End((1, 3, 3, 3), F)], POOL),
    **{
        f"LOCAL_RESPONSE_NORMALIZATION {radius}": Case(
            "LOCAL_RESPONSE_NORMALIZATION",
            [End((1, 3, 3, 7), F)],
            [End((1, 3, 3, 7), F)],
            LRN(radius=radius, bias=1.5, alpha=0.3, beta=0.75),
        )
        for radius in (0, 1, 2, 20)
    },
    **{name: elementwise(name, F) for name in ("CEIL", "ROUND", "FLOOR", "ELU", "ZEROS_LIKE")},
    **{f"ZEROS_LIKE {dtype}": elementwise("ZEROS_LIKE", dtype) for dtype in (I32, I64)},
    **{f"RIGHT_SHIFT {t}": binary("RIGHT_SHIFT", t, samples=small(t, 0)) for t in (I8, U8, I16, I32)},
    **{f"BITWISE_XOR {dtype}": binary("BITWISE_XOR", dtype) for dtype in (I8, U8, I16, I32)},
    "BITCAST": elementwise("BITCAST", I32),
    **{f"{name} float32": Case(name, [End((4,), F)] * 2, [End((4,), BOOL)], None, [NUMBERS]) for name in RELATIONS},
    **{f"{name} bool": binary(name, BOOL) for name in RELATIONS[:2]},
    **{
        f"{name} {dtype}": binary(name, dtype, samples=small(dtype))
        for name, dtypes in {
            "FLOOR_MOD": (F, I64),
            "FLOOR_DIV": (F,),
            "SQUARED_DIFFERENCE": (F, I32),
            "MAXIMUM": (F, I32, I64),
            "MINIMUM": (F, I32, I64),
        }.items()
        for dtype in dtypes
    },
    **{
        f"CAST {source} to {target}": Case(
            "CAST", [End(SHAPE, source)], [End(SHAPE, target)], None, [[(real(*SHAPE) * 50).astype(source)]]
        )
        for source in (F, I32, I64, BOOL, U8, I8, I16)
        for target in (F, I32, I64, BOOL, U8, I8, I16)
    },
    "CAST beyond int64": Case(
        "CAST",
        [End((9,), F)],
        [End((9,), I64)],
        None,
        [[array([1.7, -1.7, 1e19, -1e19, NAN, INF, -INF, 9.2e18, 2**40], F)]],
    ),
}

REDUCTIONS: dict[str, Case] = {
    **{
        f"{name} {'keeps' if options is KEEP else 'drops'}": Case(
            name, [End(SHAPE, BOOL), ints(1)], [End((2, 1, 4) if options is KEEP else (2, 4), BOOL)], options
        )
        for name in ("REDUCE_ANY", "REDUCE_ALL")
        for options in (KEEP, DROP)
    },
    "REDUCE_ANY axes": Case("REDUCE_ANY", [End(SHAPE, BOOL), ints(0, -1)], [End((3,), BOOL)], DROP),
    **{
        f"{name} {dtype}": Case(
            name, [End(SHAPE, dtype), ints(1)], [End((2, 4), dtype)], DROP, [[whole(-4, 4, SHAPE, dtype)]]
        )
        for name in ("SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")
        for dtype in (F, I32, I64)
    },
    **{
        f"{name} {dtype}": Case(
            name,
            [End(SHAPE, dtype), constant(1, I32)],
            [End((2, 4), I32)],
            getattr(schema, f"{name.title().replace('_', '')}OptionsT")(outputType=2),
            [[whole(0, 3, SHAPE, dtype)]],
            version=3 if dtype == BOOL else 1,
        )
        for name in ("ARG_MAX", "ARG_MIN")
        for dtype in (F, I32, BOOL)
    },
}


def _gather(axis: int, batch_dims: int, indices: tuple[int, ...], result: tuple[int, ...], dtype: Any = I32) -> Case:
    return Case(
        "GATHER",
        [End(SHAPE, F), End(indices, dtype)],
        [End(result, F)],
        schema.GatherOptionsT(axis=axis, batchDims=batch_dims),
        [[real(*SHAPE), whole(0, SHAPE[axis], indices, dtype)]],
    )


def _scatter(indices: Any, updates: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Case:
    inputs: list[Part] = [constant(indices, I32), End(updates, dtype), ints(*shape)]
    return Case("SCATTER_ND", inputs, [End(shape, dtype)], None, [[whole(0, 9, updates, dtype)]])


def _update(shape: tuple[int, ...], update: tuple[int, ...], starts: Sequence[Sequence[int]], dtype: Any) -> Case:
    inputs: list[Part] = [End(shape, dtype), End(update, dtype), End((len(shape),), I32)]
    samples = [[whole(0, 9, shape, dtype), whole(0, 9, update, dtype), array(each, I32)] for each in starts]
    return Case("DYNAMIC_UPDATE_SLICE", inputs, [End(shape, dtype)], None, samples)


def _one_hot(axis: int, dtype: np.dtype[Any], indices: np.dtype[Any] = I32) -> Case:
    result = [2, 3]
    result.insert(axis if axis >= 0 else 2, 4)
    inputs: list[Part] = [End((2, 3), indices), constant(4, I32), constant(5, dtype), constant(0, dtype)]
    options = schema.OneHotOptionsT(axis=axis)
    return Case("ONE_HOT", inputs, [End(result, dtype)], options, [[array([[0, 3, 4], [-1, 1, 2]], indices)]])


def _top(shape: tuple[int, ...], count: int, dtype: np.dtype[Any]) -> Case:
    ends = [End((*shape[:-1], count), dtype), End((*shape[:-1], count), I32)]
    return Case(
        "TOPK_V2",
        [End(shape, dtype), constant(count, I32)],
        ends,
        schema.TopKV2OptionsT(),
        [[whole(0, 4, shape, dtype)]],
    )


def _reversed(dtype: np.dtype[Any], along: int = 1, across: int = 0) -> Case:
    shape = (3, 4, 2)
    lengths = whole(1, shape[along] + 1, (shape[across],), I32)
    options = schema.ReverseSequenceOptionsT(seqDim=along, batchDim=across)
    inputs: list[Part] = [End(shape, dtype), End(lengths.shape, I32)]
    return Case("REVERSE_SEQUENCE", inputs, [End(shape, dtype)], options, [[whole(0, 9, shape, dtype), lengths]])


def _segments(reduction: str, dtype: np.dtype[Any]) -> Case:
    inputs: list[Part] = [End((4, 3), dtype), End((4,), I32), constant(4, I32)]
    sample = [whole(-4, 4, (4, 3), dtype), array([1, -1, 3, 1], I32)]
    return Case(f"UNSORTED_SEGMENT_{reduction}", inputs, [End((4, 3), dtype)], None, [sample])


def _buckets(dtype: np.dtype[Any], *boundaries: float) -> Case:
    options = schema.BucketizeOptionsT()
    options.boundaries = list(boundaries)
    sample = array([[-9, -2, 0, 1], [2, 3, 5, 9]], dtype)
    return Case("BUCKETIZE", [End((2, 4), dtype)], [End((2, 4), I32)], options, [[sample]])


def _boxes(count: int, most: int, least: float, *, soft: bool, overlap: float = 0.3) -> Case:
    """Returns a suppression of `count` boxes with different scores, of which some overlap."""
    corners = RNG.uniform(0, 4, (count, 2))
    boxes = np.concatenate([corners, corners + RNG.uniform(1, 3, (count, 2))], axis=1).astype(np.float32)
    scores = RNG.permutation(np.linspace(0, 1, count)).astype(np.float32)
    inputs: list[Part] = [End((count, 4), F), End((count,), F), constant(most, I32), constant(overlap, F)]
    inputs += [constant(least, F), *([constant(0, F)] if soft else [])]
    ends = [End((most,), I32), *([End((most,), F)] if soft else []), End((), I32)]
    return Case(f"NON_MAX_SUPPRESSION_V{4 + soft}", inputs, ends, None, [[boxes, scores]])


INDEXING: dict[str, Case] = {
    **{f"BUCKETIZE {dtype}": _buckets(dtype, -2, 0, 0.5, 3) for dtype in (F, I32, I64)},
    **{f"NON_MAX_SUPPRESSION_V4 {most}": _boxes(12, most, 0.25, soft=False) for most in (1, 5, 20)},
    **{f"NON_MAX_SUPPRESSION_V4 overlap {each}": _boxes(6, 6, 0.0, soft=False, overlap=each) for each in (0, 1)},
    **{f"NON_MAX_SUPPRESSION_V5 {most}": _boxes(12, most, -1.0, soft=True) for most in (4, 20)},
    "STABLEHLO_SHIFT_LEFT": Case(
        "STABLEHLO_SHIFT_LEFT",
        [End((4,), I32), End((4,), I32)],
        [End((4,), I32)],
        None,
        [[array([1, -3, 7, 100], I32), array([0, 3, 5, 12], I32)]],
    ),
    "GATHER batch_dims 1": _gather(1, 1, (2, 5), (2, 5, 4)),
    "GATHER batch_dims 1 axis 2": _gather(2, 1, (2, 5), (2, 3, 5)),
    "GATHER batch_dims 2": _gather(2, 2, (2, 3, 5), (2, 3, 5), I64),
    "GATHER batch_dims -1": _gather(1, -1, (2, 5), (2, 5, 4)),
    "GATHER_ND": Case(
        "GATHER_ND",
        [End(SHAPE, F), End((5, 2), I32)],
        [End((5, 4), F)],
        None,
        [[real(*SHAPE), whole(0, 2, (5, 2), I32)]],
    ),
    **{
        f"EMBEDDING_LOOKUP {rank}": Case(
            "EMBEDDING_LOOKUP",
            [End((5,), I32), Constant(real(7, 3, 2)[..., : rank - 1].reshape(7, *[3, rank - 1][: rank - 1]))],
            [End((5, 3, 2) if rank == 3 else (5, 3), F)],
            None,
            [[whole(0, 7, (5,), I32)]],
        )
        for rank in (2, 3)
    },
    **{f"ONE_HOT {axis}": _one_hot(axis, F) for axis in (-1, 0, 1)},
    "ONE_HOT bool": _one_hot(-1, BOOL, I64),
    **{f"TOPK_V2 {dtype}": _top((3, 7), 3, dtype) for dtype in (F, I32)},
    "TOPK_V2 of a row": _top((7,), 7, F),
    **{f"SCATTER_ND {dtype}": _scatter([[1], [3], [1], [0]], (4, 3), (6, 3), dtype) for dtype in (F, I32, I64, I8, U8)},
    "SCATTER_ND bool": Case(
        "SCATTER_ND", [constant([[1], [0]], I32), End((2, 3), BOOL), ints(3, 3)], [End((3, 3), BOOL)]
    ),
    "SCATTER_ND elements": _scatter([[1, 2], [0, 0], [1, 2]], (3,), (3, 3), F),
    "DYNAMIC_UPDATE_SLICE": _update((4, 5, 6), (2, 5, 3), [[1, 0, 2], [9, 1, -5], [-1, 0, 3]], F),
    "DYNAMIC_UPDATE_SLICE rows": _update((4, 5, 6), (4, 2, 6), [[0, 3, 0], [0, 4, 0]], F),
    "DYNAMIC_UPDATE_SLICE bool": _update((4,), (2,), [[0], [1], [2], [7]], BOOL),
    "DYNAMIC_UPDATE_SLICE whole": _update((4,), (4,), [[0], [3]], I32),
    **{f"FILL {dtype}": Case("FILL", [ints(2, 3), End((), dtype)], [End((2, 3), dtype)]) for dtype in (F, I64, BOOL)},
    "RANK": Case("RANK", [End(SHAPE, F)], [End((), I32)]),
    "BROADCAST_TO": Case("BROADCAST_TO", [End((3, 1), F), ints(2, 3, 4)], [End(SHAPE, F)], version=2),
    **{f"REVERSE_SEQUENCE {dtype}": _reversed(dtype) for dtype in (F, I32, U8, I16, I64)},
    "REVERSE_SEQUENCE along 0": _reversed(F, 0, 2),
    "MATRIX_DIAG": Case("MATRIX_DIAG", [End((2, 3), F)], [End((2, 3, 3), F)]),
    **{
        f"MATRIX_SET_DIAG {rows} by {columns}": Case(
            "MATRIX_SET_DIAG", [End((2, rows, columns), F), End((2, 3), F)], [End((2, rows, columns), F)]
        )
        for rows, columns in ((3, 3), (3, 5), (5, 3))
    },
    "SEGMENT_SUM": Case("SEGMENT_SUM", [End((4, 3), F), ints(0, 0, 1, 2)], [End((3, 3), F)]),
    **{
        f"UNSORTED_SEGMENT_{name} {dtype}": _segments(name, dtype)
        for name in ("SUM", "PROD", "MAX", "MIN")
        for dtype in (F, I32)
    },
}

Triple = tuple[int, int, int]
VOLUME, WINDOW, ONES = (2, 5, 6, 7, 3), (2, 3, 2), (1, 1, 1)


def _volume(
    *, same: bool, strides: Triple = (1, 1, 1), dilations: Triple = (1, 1, 1), transposed: bool = False
) -> Case:
    axes = list(zip(VOLUME[1:4], WINDOW, strides, dilations, strict=True))
    made = [output_size(SAME if same else VALID, *axis) for axis in axes]
    options = schema.Conv3DOptionsT(
        padding=SAME if same else VALID,
        **{f"stride{axis}": step for axis, step in zip("DHW", strides, strict=True)},
        **{f"dilation{axis}Factor": step for axis, step in zip("DHW", dilations, strict=True)},
    )
    bias = Constant(real(4))
    if not transposed:
        inputs: list[Part] = [End(VOLUME, F), Constant(real(*WINDOW, 3, 4)), bias]
        return Case("CONV_3D", inputs, [End((2, *made, 4), F)], options)
    inputs = [ints(*VOLUME[:4], 4), Constant(real(*WINDOW, 4, 3)), End((2, *made, 3), F), bias]
    return Case("CONV_3D_TRANSPOSE", inputs, [End((*VOLUME[:4], 4), F)], options)


_STEPS: dict[str, dict[str, Triple]] = {
    "plain": {},
    "strided": {"strides": (2, 3, 2)},
    "dilated": {"dilations": (2, 1, 2)},
}
LAYERS: dict[str, Case] = {
    **{
        f"{'transposed ' if transposed else ''}volume, {name}, {'same' if same else 'valid'}": _volume(
            same=same, transposed=transposed, **steps
        )
        for name, steps in _STEPS.items()
        for same in (True, False)
        for transposed in (True, False)
    },
    **{
        f"FAKE_QUANT in {bits} bits": elementwise(
            "FAKE_QUANT", F, schema.FakeQuantOptionsT(min=-3.1, max=4.2, numBits=bits)
        )
        for bits in (4, 8, 16)
    },
    **{
        f"STABLEHLO_{name} {dtype}": Case(f"STABLEHLO_{name}", [End(SHAPE, dtype)] * 2, [End(SHAPE, dtype)])
        for name in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")
        for dtype in (F, I32)
    },
    "STABLEHLO_AND": Case("STABLEHLO_AND", [End(SHAPE, BOOL)] * 2, [End(SHAPE, BOOL)]),
}

CASES = FUNCTIONS | REDUCTIONS | INDEXING | LAYERS
