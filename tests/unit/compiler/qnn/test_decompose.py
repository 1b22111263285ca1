"""A transposed convolution and the ordinary convolution that replaces it give the same result bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.parser import parse_module
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType, accumulator_type
from service.core.builds.numerics import FBGEMM, MODES_OF
from tests.support.examples import examples
from tests.support.qnn_models import Emit, compile_and_run, float32, module_of
from tests.support.selected import RUNNING, run_selected

import tvm  # isort: skip

HERE = RUNNING
EXAMPLES = settings(max_examples=examples(60), deadline=None)
UP_TO_3 = st.tuples(st.integers(1, 3), st.integers(1, 3))
UP_TO_5 = st.tuples(st.integers(1, 5), st.integers(1, 5))


def model(
    rng: np.random.Generator,
    storage: str,
    size: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    *,
    channels: int = 3,
    filters: int = 5,
    requantized: bool = True,
) -> tuple[tvm.IRModule, np.ndarray]:
    """Returns a transposed convolution of extreme or random values, with any padding, and an input for it."""
    low, high = STORAGE_RANGES[storage]
    in_type = QuantizedType(storage, (float32(0.02),), (int(rng.choice([low, high, int(rng.integers(low, high))])),))
    out_type = QuantizedType(storage, (float32(rng.uniform(0.1, 2.0)),), (int(rng.integers(low, high)),))
    if storage == "int8":
        weight_type = QuantizedType("int8", tuple(map(float32, rng.uniform(0.001, 0.02, filters))), axis=0)
    else:
        weight_type = QuantizedType("uint8", (float32(0.01),), (int(rng.integers(0, 256)),))
    weight, x = (
        rng.choice([low, high], shape).astype(storage)
        if rng.integers(3) == 0
        else rng.integers(low, high, shape, endpoint=True).astype(storage)
        for shape in ((filters, *kernel, channels), (2, *size, channels))
    )
    bias = relax.const(rng.integers(-3000, 3000, filters).astype(np.int32)) if rng.integers(2) else None
    output_padding = (int(rng.integers(0, 3)), int(rng.integers(0, 3)))
    full = [(n - 1) * s + k for n, s, k in zip(size, strides, kernel, strict=True)]
    before = [int(rng.integers(0, k)) for k in kernel]
    after = [int(rng.integers(0, max(whole - lost, 1))) for whole, lost in zip(full, before, strict=True)]

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        sums = emit(
            ops.conv2d_transpose(
                inputs[0], relax.const(weight), bias, in_type, weight_type,
                strides=strides, padding=(*before, *after), output_padding=output_padding,
            )
        )  # fmt: skip
        return emit(ops.requantize(sums, accumulator_type(in_type, weight_type, 3), out_type)) if requantized else sums

    return module_of([(x.shape, storage)], body), x


@EXAMPLES
@given(
    st.sampled_from(["int8", "uint8"]), UP_TO_5, UP_TO_5, UP_TO_3, st.booleans(), st.integers(0, 1 << 32),
    st.sampled_from(MODES_OF["tflite"]),
)  # fmt: skip
def test_the_outputs_stay_the_same(
    storage: str,
    size: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    requantized: bool,
    seed: int,
    mode: str,
) -> None:
    module, x = model(np.random.default_rng(seed), storage, size, kernel, strides, requantized=requantized)
    decomposed = decompose(module)
    assert "conv2d_transpose" not in decomposed.script()
    (expected,) = oracle.run(module, get_mode(mode), [x])
    (actual,) = oracle.run(decomposed, get_mode(mode), [x])
    np.testing.assert_array_equal(actual, expected)


def test_phases_interleave_after_they_are_requantized() -> None:
    module, _ = model(np.random.default_rng(0), "int8", (3, 3), (4, 4), (2, 2))
    names = [ops.name_of(value) for _, value in graph.bindings(graph.main_of(decompose(module)))]
    assert names[:2] == ["conv2d", "requantize"]
    assert set(names[2:]) == {None}


@pytest.mark.parametrize("mode", MODES_OF["tflite"])
def test_canonical_form_without_decompose(mode: str) -> None:
    module, x = model(np.random.default_rng(1), "uint8", (3, 4), (3, 4), (2, 3))
    (expected,) = oracle.run(module, get_mode(mode), [x])
    np.testing.assert_array_equal(compile_and_run(canonicalize(module, get_mode(mode)), [x]), expected)


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("mode", MODES_OF["tflite"])
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_kernels_compute_the_decomposed_layer(target, mode: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(2)
    module, x = model(rng, "int8", (5, 4), (4, 3), (2, 2), channels=24, filters=20)
    (expected,) = oracle.run(module, get_mode(mode), [x])
    selection, (actual,) = run_selected(module, target, mode, [x], tmp_path)
    np.testing.assert_array_equal(actual, expected)
    assert [layer["kernel"] for layer in selection.layers] == ["pack", "conv", "move"]


def test_what_belongs_to_a_filter_is_repeated_for_each_phase() -> None:
    """Scales and zero points of the result, and a bias of real values."""
    module = parse_module("""\
!0 = !quant.uniform<u8:f32, 0.5:3>
!1 = !quant.uniform<i8:f32, 0.25>
!2 = !quant.uniform<i32:f32, 0.125>
!3 = !quant.uniform<u8:f32:3, {1.0:5,0.25:100}>
main
  %0: tensor<1x2x2x1xu8> loc("x")
  %1 = qnn.conv2d_transpose(%0, const<2x2x2x1xi8> [1, 2, 3, 4, -1, -2, 3, 9]) {in_type = !0, weight_type = !1, \
strides = [2, 2], padding = [0, 0, 0, 0], output_padding = [0, 0], accum_dtype = "int32"} \
: tensor<1x4x4x2xi32> loc("sums")
  %2 = qnn.requantize(%1, const<2xf32> [20.0, -7.5]) {in_type = !2, out_type = !3} : tensor<1x4x4x2xu8> loc("y")
  return %2
""")
    mode, x = get_mode(FBGEMM), np.array([[[[0], [3]], [[77], [255]]]], np.uint8)
    result = decompose(module)
    names = [found.name for _, _, found in graph.operations(graph.main_of(result)) if found is not None]
    assert names == ["qnn.conv2d", "qnn.requantize"]
    expected, got = (oracle.run(each, mode, [x])[0] for each in (module, result))
    np.testing.assert_array_equal(got, expected)
