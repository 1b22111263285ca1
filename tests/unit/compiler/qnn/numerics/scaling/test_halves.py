"""Conversions between stored values and real values of 16 bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.parser import parse_module
from service.core.builds.numerics import LITERT_REFERENCE, MODES
from service.core.errors import UnsupportedOperator
from service.core.target import parse_target
from tests.support.qnn_models import compile_and_run_all, module_of
from tests.support.selected import in_turns, run_selected

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
LONG = {"f16": "float16", "bf16": "bfloat16"}
GRAPH = """\
!0 = !quant.uniform<i4:{half}:1, {{0.5,0.25:-3,0.125:7,1.0}}>
!1 = !quant.uniform<u12:{half}:{{1:2}}, {{{{0.001220703125:1000,2.0}}}}>
main
  %0: tensor<64x4xf32> loc("x")
  %1 = astype(%0) {{dtype = "{long}"}} : tensor<64x4x{half}> loc("halves")
  %2 = multiply(%1, const<{half}> [1.5]) : tensor<64x4x{half}> loc("scaled")
  %3 = qnn.quantize(%2) {{out_type = !0}} : tensor<64x4xi8> loc("stored")
  %4 = qnn.dequantize(%3) {{in_type = !0}} : tensor<64x4x{half}> loc("real")
  %5 = qnn.quantize(%2) {{out_type = !1}} : tensor<64x4xu16> loc("blocks")
  %6 = qnn.dequantize(%5) {{in_type = !1}} : tensor<64x4x{half}> loc("real_blocks")
  %7 = add(%4, %6) : tensor<64x4x{half}> loc("sum")
  %8 = reshape(%7, shape<4x64>) : tensor<4x64x{half}> loc("moved")
  %9 = astype(%8) {{dtype = "float32"}} : tensor<4x64xf32> loc("y")
  %10 = astype(%1) {{dtype = "float32"}} : tensor<64x4xf32> loc("rounded")
  return %3, %5, %9, %10,
"""
RNG = np.random.default_rng(0)
GPU = parse_target("cuda-sm_80")  # emulated
X = (RNG.normal(0, 1, (64, 4)) * 10.0 ** RNG.integers(-10, 6, (64, 4))).astype(np.float32)


def graph(half: str) -> str:
    return GRAPH.format(half=half, long=LONG[half])


@pytest.mark.parametrize("half", NUMPY)
@pytest.mark.parametrize("mode", MODES)
def test_the_canonical_form_equals_the_oracle(mode: str, half: str) -> None:
    module = parse_module(graph(half))
    expected = oracle.run(module, get_mode(mode), [X])
    for got, wanted in zip(compile_and_run_all(canonicalize(module, get_mode(mode)), [X]), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("half", NUMPY)
@pytest.mark.parametrize(("target", "mode"), [*in_turns(LITERT_REFERENCE), (GPU, LITERT_REFERENCE)], ids=str)
def test_compiled_models_equal_the_oracle(target, mode: str, half: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    module = parse_module(graph(half))
    _, got = run_selected(module, target, mode, [X], tmp_path)
    for one, wanted in zip(got, oracle.run(module, get_mode(mode), [X]), strict=True):
        np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("half", NUMPY)
def test_the_oracle_rounds_once(half: str) -> None:
    """The expected values are computed from the definition, in float64."""
    module = parse_module(graph(half))
    stored, _, _, rounded = oracle.run(module, get_mode(LITERT_REFERENCE), [X])
    with np.errstate(over="ignore"):
        halves = X.astype(NUMPY[half])
        scaled = (halves.astype(np.float64) * 1.5).astype(NUMPY[half]).astype(np.float64)
    np.testing.assert_array_equal(rounded, halves.astype(np.float32))
    quotients = scaled / np.array([0.5, 0.25, 0.125, 1.0])  # exact
    nearest = np.sign(quotients) * np.floor(np.abs(quotients) + 0.5) + np.array([0, -3, 7, 0])
    fits = np.abs(quotients) < 2.0**31  # LiteRT's kernel returns the least value for larger quotients
    np.testing.assert_array_equal(stored[fits], np.clip(nearest, -8, 7)[fits])


@pytest.mark.parametrize("half", NUMPY)
def test_every_value_near_a_tie_is_rounded_to_even(half: str) -> None:
    """The inputs are all values of the type, the points halfway between neighbours, and their neighbours in float32."""
    words = np.arange(1 << 16, dtype=np.uint16).view(NUMPY[half]).astype(np.float32)
    values = np.sort(words[np.isfinite(words)])
    ties = (values[1:].astype(np.float64) + values[:-1]) / 2
    x = np.concatenate([values, *(np.nextafter(ties.astype(np.float32), np.float32(end)) for end in (-np.inf, np.inf))])
    x = np.concatenate([x, ties.astype(np.float32), np.array([np.inf, -np.inf, np.nan, -0.0, 3e38], np.float32)])
    module = module_of(
        [(x.shape, "float32")],
        lambda emit, inputs: emit(relax.op.astype(emit(relax.op.astype(inputs[0], LONG[half])), "float32")),
    )
    (got,) = compile_and_run_all(canonicalize(module, get_mode(LITERT_REFERENCE)), [x])
    with np.errstate(over="ignore"):
        expected = x.astype(NUMPY[half]).astype(np.float32)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_operators_that_would_round_differently_are_refused() -> None:
    half = "float16"
    exp = module_of(
        [((4,), "float32")], lambda emit, inputs: emit(relax.op.exp(emit(relax.op.astype(inputs[0], half))))
    )
    with pytest.raises(UnsupportedOperator, match="exp: operands of 16-bit reals are not compiled"):
        canonicalize(exp, get_mode(LITERT_REFERENCE))
    wide = module_of([((4,), "int32")], lambda emit, inputs: emit(relax.op.astype(inputs[0], half)))
    with pytest.raises(UnsupportedOperator, match="int32 cannot be converted to float16"):
        canonicalize(wide, get_mode(LITERT_REFERENCE))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_values_of_8_bits_are_rounded_to_even(name: str) -> None:
    """The inputs are all finite values of the type, the points halfway between neighbours, and values next to these."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    values = np.unique(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
    values = values[np.isfinite(values)]
    ties = (values[1:] + values[:-1]) / 2
    x = np.concatenate([values, ties, *(np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf))])
    module = module_of(
        [(x.shape, "float32")],
        lambda emit, inputs: emit(relax.op.astype(emit(relax.op.astype(inputs[0], name)), "float32")),
    )
    (got,) = compile_and_run_all(canonicalize(module, get_mode(LITERT_REFERENCE)), [x])
    np.testing.assert_array_equal(got, x.astype(dtype).astype(np.float32))
