"""Requantization to per-axis types: each channel is computed as if its scale were that of the whole tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import FBGEMM, LITERT_REFERENCE, ONEDNN, ONNXRUNTIME, TORCH_X86, XNNPACK
from service.core.models.arrays import Array
from service.core.target import parse_target
from tests.support.qnn_models import STORED_MODES, Emit, compile_and_run_all, i8, module_of, u8
from tests.support.selected import in_turns, run_selected

RNG = np.random.default_rng(0)
GPU = parse_target("cuda-sm_80")  # emulated
TARGETS = [*in_turns(LITERT_REFERENCE, XNNPACK, ONNXRUNTIME), (GPU, LITERT_REFERENCE)]
X_TYPE, WEIGHT_TYPE = u8(0.03, 120), QuantizedType("int8", (0.01, 0.02, 0.005, 0.03, 0.01), axis=0)
WEIGHTS = RNG.integers(-127, 128, (5, 3, 3, 4)).astype(np.int8)
SUMS_TYPE = accumulator_type(X_TYPE, WEIGHT_TYPE, 3)
OUT_TYPE = QuantizedType("uint8", (0.5, 0.3, 0.01, 0.7, 0.11), (3, 128, 0, 255, 100), axis=3)
BIAS = np.array([1.5, -0.25, 0.125, 30, -2], np.float32)
IMAGES = RNG.integers(0, 256, (2, 6, 5, 4)).astype(np.uint8)
STORED_TYPE, ROWS_TYPE = i8(0.25, 7), QuantizedType("int8", (0.25, 0.1, 2.0), (7, -3, 1), axis=1)
STORED = RNG.integers(-128, 128, (4, 3, 2)).astype(np.int8)
LAYERS: dict[str, Callable[..., relax.Call]] = {"conv2d": ops.conv2d, "conv2d_transpose": ops.conv2d_transpose}


def layer(name: str, out_type: QuantizedType, bias: Array | None = None) -> tvm.IRModule:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        sums = emit(LAYERS[name](inputs[0], relax.const(WEIGHTS), None, X_TYPE, WEIGHT_TYPE, strides=(2, 2)))
        added = None if bias is None else relax.const(bias)
        stored = emit(ops.requantize(sums, SUMS_TYPE, out_type, added))
        return emit(ops.dequantize(stored, out_type))

    return module_of([(IMAGES.shape, "uint8")], body)


def conversion(out_type: QuantizedType) -> tvm.IRModule:
    return module_of(
        [(STORED.shape, "int8")], lambda emit, inputs: emit(ops.requantize(inputs[0], STORED_TYPE, out_type))
    )


def of_each(by_axis: QuantizedType) -> list[QuantizedType]:
    """Returns a per-tensor type for each scale."""
    points = zip(by_axis.scales, by_axis.zero_points, strict=True)
    return [replace(by_axis, scales=(scale,), zero_points=(zero_point,), axis=None) for scale, zero_point in points]


def check(module: tvm.IRModule, mode: str, x: Array, expected: Array) -> None:
    (got,) = oracle.run(module, get_mode(mode), [x])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(compile_and_run_all(canonicalize(module, get_mode(mode)), [x])[0], expected)


@pytest.mark.parametrize("mode", STORED_MODES)
@pytest.mark.parametrize("name", LAYERS)
def test_each_channel_of_a_layer_is_stored_with_its_own_scale(name: str, mode: str) -> None:
    whole = [oracle.run(layer(name, kind), get_mode(mode), [IMAGES])[0] for kind in of_each(OUT_TYPE)]
    expected = np.stack([values[..., channel] for channel, values in enumerate(whole)], axis=-1)
    check(layer(name, OUT_TYPE), mode, IMAGES, expected)


@pytest.mark.parametrize("mode", STORED_MODES)
def test_each_row_of_a_stored_tensor_is_converted_to_its_own_scale(mode: str) -> None:
    whole = [oracle.run(conversion(kind), get_mode(mode), [STORED])[0] for kind in of_each(ROWS_TYPE)]
    expected = np.stack([values[:, row] for row, values in enumerate(whole)], axis=1)
    check(conversion(ROWS_TYPE), mode, STORED, expected)


@pytest.mark.parametrize("mode", [ONNXRUNTIME, FBGEMM])
def test_formulas_without_an_expression_convert_values_of_16_bits(mode: str) -> None:
    in_type, stored = QuantizedType("int16", (0.001,), (-5,)), (STORED.astype(np.int16) * 256 + 77).astype(np.int16)

    def conversion_of_words(out_type: QuantizedType) -> tvm.IRModule:
        return module_of(
            [(stored.shape, "int16")], lambda emit, inputs: emit(ops.requantize(inputs[0], in_type, out_type))
        )

    whole = [oracle.run(conversion_of_words(kind), get_mode(mode), [stored])[0] for kind in of_each(ROWS_TYPE)]
    expected = np.stack([values[:, row] for row, values in enumerate(whole)], axis=1)
    check(conversion_of_words(ROWS_TYPE), mode, stored, expected)


@pytest.mark.parametrize("mode", STORED_MODES)
def test_each_row_is_converted_from_its_own_scale(mode: str) -> None:
    def conversion_from(in_type: QuantizedType) -> tvm.IRModule:
        return module_of(
            [(STORED.shape, "int8")], lambda emit, inputs: emit(ops.requantize(inputs[0], in_type, STORED_TYPE))
        )

    whole = [oracle.run(conversion_from(kind), get_mode(mode), [STORED])[0] for kind in of_each(ROWS_TYPE)]
    expected = np.stack([values[:, row] for row, values in enumerate(whole)], axis=1)
    check(conversion_from(ROWS_TYPE), mode, STORED, expected)


@pytest.mark.parametrize("mode", [FBGEMM, ONEDNN, ONNXRUNTIME, TORCH_X86])
def test_a_bias_of_real_values_is_added_to_its_channel(mode: str) -> None:
    whole = [oracle.run(layer("conv2d", kind, BIAS), get_mode(mode), [IMAGES])[0] for kind in of_each(OUT_TYPE)]
    expected = np.stack([values[..., channel] for channel, values in enumerate(whole)], axis=-1)
    check(layer("conv2d", OUT_TYPE, BIAS), mode, IMAGES, expected)


@pytest.mark.parametrize(("target", "mode"), TARGETS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_compiled_models_equal_the_oracle(target, name: str, mode: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    module = layer(name, OUT_TYPE)
    _, (got,) = run_selected(module, target, mode, [IMAGES], tmp_path)
    np.testing.assert_array_equal(got, oracle.run(module, get_mode(mode), [IMAGES])[0])


@pytest.mark.parametrize(
    ("in_type", "out_type", "bias", "reason"),
    [
        (STORED_TYPE, replace(ROWS_TYPE, axis=2), None, "3 scales do not fit 2 indices of axis 2"),
        (
            replace(ROWS_TYPE, axis=2, scales=(1.0, 2.0), zero_points=(0,)),
            ROWS_TYPE,
            None,
            "along axis 2, but out_type along axis 1",
        ),
        (STORED_TYPE, ROWS_TYPE, BIAS[:2], "a bias is along the last axis, but the scales are not"),
    ],
)
def test_types_that_do_not_fit_are_refused(
    in_type: QuantizedType, out_type: QuantizedType, bias: Array | None, reason: str
) -> None:
    added = None if bias is None else relax.const(bias)
    with pytest.raises(IllTyped, match=reason):
        module_of(
            [(STORED.shape, "int8")],
            lambda emit, inputs: emit(ops.requantize(inputs[0], in_type, out_type, added)),
        )
