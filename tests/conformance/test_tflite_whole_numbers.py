"""FLOOR_DIV, FLOOR_MOD, DIV and CAST of stored elements, and operators that round real values, compared with LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array
from tests.support.conformance import assert_equals_litert
from tests.support.litert import MODES
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_builder import ModelBuilder, Quant
from tests.support.tflite_operator import Constant, End, operator_model

X = Quant(0.5, 3)  # none of these kernels reads the quantization
OPTIONS: dict[str, Any] = {
    "DIV": schema.DivOptionsT(),
    "FLOOR_DIV": schema.FloorDivOptionsT(),
    "FLOOR_MOD": schema.FloorModOptionsT(),
}
DIVISIONS = [
    ("DIV", np.int32),
    *(("FLOOR_DIV", dtype) for dtype in (np.int8, np.int16, np.int32, np.float32)),
    *(("FLOOR_MOD", dtype) for dtype in (np.int8, np.int16, np.int32)),
]
REALS = np.array(
    [0, -0.0, 0.5, 1.5, -1.7, 127.9, 128, -129, 255.4, 3e4, 7e4, -7e4, 2147483520, 3e9, -3e9, np.inf, -np.inf, np.nan],
    np.float32,
)
NUMBERS: dict[str, Array] = {
    "bool": np.array([True, False]),
    "float32": REALS,
    **{
        dtype: np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1, 77, 127, np.iinfo(dtype).max - 3], dtype)
        for dtype in ("int8", "uint8", "int16", "int32", "int64")
    },
}


def division(name: str, dtype: npt.DTypeLike, *, rows: int = 64, columns: int = 64) -> bytes:
    quant = X if np.dtype(dtype).itemsize == 1 else None
    ends = [End((rows, 1), dtype, quant), End((1, columns), dtype, quant)]
    return operator_model(name, ends, [End((rows, columns), dtype, quant)], OPTIONS[name])


def operands(dtype: npt.DTypeLike, rng: np.random.Generator) -> list[Array]:
    """Returns numbers of every magnitude, including the ends of the type. No divisor is 0."""
    if np.dtype(dtype).kind == "f":
        x, y = (rng.normal(0, 10.0 ** rng.integers(-3, 5, 64)).astype(dtype) for _ in range(2))
    else:
        limits = np.iinfo(np.dtype(dtype))
        x, y = (
            np.clip(rng.normal(0, 2.0 ** rng.integers(1, limits.bits, 64)), limits.min, limits.max).astype(dtype)
            for _ in range(2)
        )
        x[:2] = limits.min, limits.max
        y[:4] = limits.min, limits.max, 1, -1
        if dtype is np.int32:  # LiteRT's own FLOOR_MOD crashes for the smallest number
            y[y == -1] = -2
    return [x[:, None], np.where(y == 0, np.array(3, dtype), y)[None]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "dtype"), DIVISIONS)
def test_quotients_equal_litert(name: str, dtype: npt.DTypeLike, mode: str) -> None:
    rng = np.random.default_rng(3)
    assert_equals_litert(division(name, dtype), mode, [operands(dtype, rng) for _ in range(6)])


@pytest.mark.parametrize(("name", "expected"), [("FLOOR_DIV", -(2**31)), ("DIV", 2**31 - 1)])
def test_the_least_number_by_minus_one_is_litert_s(name: str, expected: int) -> None:
    data = division(name, np.int32, rows=1, columns=1)
    sample = [np.array([[-(2**31)]], np.int32), np.array([[-1]], np.int32)]
    assert_equals_litert(data, LITERT_REFERENCE, [sample])
    assert compiled(data, sample)[0].item() == expected


@pytest.mark.parametrize("size", [7, 8, 17, 40])
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_the_least_narrow_number_by_minus_one_saturates_in_groups_of_eight(dtype: type, size: int) -> None:
    least = np.iinfo(dtype).min
    ends: list[End | Constant] = [End((size,), dtype, X), Constant(np.full(size, -1, dtype), X)]
    data = operator_model("FLOOR_DIV", ends, [End((size,), dtype, X)], OPTIONS["FLOOR_DIV"])
    assert_equals_litert(data, LITERT_REFERENCE, [[np.full(size, least, dtype)], [np.arange(size, dtype=dtype)]])


@pytest.mark.parametrize(("name", "dtype"), [each for each in DIVISIONS if each[1] is not np.float32])
def test_nothing_traps(name: str, dtype: npt.DTypeLike) -> None:
    """The operands include a divisor of 0, for which LiteRT fails, and the smallest number divided by -1."""
    least = np.iinfo(np.dtype(dtype)).min
    sample = [np.array([[least], [7]], dtype), np.array([[0, -1]], dtype)]
    (made,) = compiled(division(name, dtype, rows=2, columns=2), sample)
    assert made[:, 0].tolist() == [0, 0]
    assert made[1, 1] == (0 if name == "FLOOR_MOD" else -7)


@pytest.mark.parametrize("activation", [1, 3])
def test_whole_quotients_are_clamped(activation: int) -> None:
    options = schema.DivOptionsT(fusedActivationFunction=activation)
    ends = [End((4,), np.int32), End((4,), np.int32)]
    data = operator_model("DIV", ends, [End((4,), np.int32)], options)
    sample = [np.array([7, -7, 100, 3], np.int32), np.array([1, 2, 2, 4], np.int32)]
    assert_equals_litert(data, LITERT_REFERENCE, [sample])


@pytest.mark.parametrize("target", NUMBERS)
@pytest.mark.parametrize("source", NUMBERS)
def test_casts_equal_litert(source: str, target: str) -> None:
    x = NUMBERS[source]
    data = operator_model("CAST", [End(x.shape, source)], [End(x.shape, target)], schema.CastOptionsT())
    assert_equals_litert(data, LITERT_REFERENCE, [[x]])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(
            compiled(data, [x])[0], oracle.run(import_model(data).module, get_mode(LITERT_REFERENCE), [x])[0]
        )


@pytest.mark.parametrize("name", ["CEIL", "FLOOR", "ROUND"])
def test_rounding_equals_litert(name: str) -> None:
    """Some values are halfway between two integers. LiteRT has no reference kernels for CEIL and ROUND."""
    assert_equals_litert(_between_conversions(name, 9), XNNPACK, [[np.arange(-4, 5, dtype=np.int8)]])


def _between_conversions(name: str, size: int) -> bytes:
    builder = ModelBuilder()
    x, real = builder.tensor("x", (size,), np.int8, Quant(0.5)), builder.tensor("real", (size,), np.float32)
    y = builder.tensor("y", (size,), np.float32)
    builder.operator("DEQUANTIZE", [x], [real])
    builder.operator(name, [real], [y])
    return builder.build([x], [y])


def test_types_that_litert_does_not_divide_are_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="FLOOR_DIV on uint8"):
        import_model(division("FLOOR_DIV", np.uint8))


def compiled(data: bytes, sample: list[Array]) -> list[Array]:
    module = canonicalize(import_model(data).module, get_mode(LITERT_REFERENCE))
    return list(compile_and_run_all(module, sample))
