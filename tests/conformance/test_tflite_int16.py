"""16x8 quantization: the oracle gives the same bits as LiteRT in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.errors import Unsupported, UnsupportedOperator
from service.core.models.arrays import Array
from tests.support import litert
from tests.support import tflite_models as models
from tests.support.conformance import assert_equals_litert, assert_oracle_equals_litert
from tests.support.examples import examples
from tests.support.litert import MODES
from tests.support.tflite_builder import Quant
from tests.support.tflite_catalog_16x8 import FRACTION16, MODELS, SUM_INT16, X16, Y16, positive_model

EXAMPLES = settings(max_examples=examples(60), deadline=None)
SMALL = st.tuples(st.integers(1, 3), st.integers(1, 3))
INT16 = np.iinfo(np.int16)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_operator_equals_litert(name: str, mode: str) -> None:
    assert_oracle_equals_litert(MODELS[name](), samples=3, numerics=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["RSQRT", "SQRT"])
def test_root_equals_litert(name: str, mode: str) -> None:
    every = np.arange(1 << 15, dtype=np.int16).reshape(256, 128)
    assert_equals_litert(positive_model(name), mode, [[every]])


def test_sum_is_computed_only_by_the_default_kernel() -> None:
    """The reference kernel reads and writes 16-bit values as bytes, and leaves half of the output uninitialized."""
    assert_oracle_equals_litert(SUM_INT16(), samples=3, numerics=XNNPACK)
    with pytest.raises(UnsupportedOperator, match="reads 16-bit values as bytes"):
        assert_oracle_equals_litert(SUM_INT16(), samples=1)


def test_equal_uses_the_scales() -> None:
    """Random 16-bit values are rarely equal, so this test compares small ones."""
    rng = np.random.default_rng(0)
    for mode in MODES:
        for name in ("equal int16", "not_equal int16"):
            small = [rng.integers(-9, 10, shape).astype(np.int16) for shape in ((40, 50), (50,))]
            assert_equals_litert(MODELS[name](), mode, [small])


@EXAMPLES
@given(
    st.sampled_from(["conv", "depthwise", "transposed", "dense"]), st.tuples(st.integers(1, 8), st.integers(1, 8)),
    SMALL, SMALL, SMALL, st.sampled_from(["SAME", "VALID"]), st.sampled_from(["NONE", "RELU", "RELU6"]),
    st.floats(1e-6, 1e-2), st.integers(0, 1 << 32),
)  # fmt: skip
def test_layer_equals_litert(
    kind: str,
    size: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: str,
    activation: str,
    scale: float,
    seed: int,
) -> None:
    """The inputs are random, and extreme ones whose sums do not fit 32 bits."""
    reach = [(extent - 1) * step + 1 for extent, step in zip(window, dilation, strict=True)]
    assume(padding == "SAME" or (size[0] >= reach[0] and size[1] >= reach[1]))
    rng = np.random.default_rng(seed)
    channels, filters = int(rng.integers(1, 80)), int(rng.integers(1, 6))
    outputs = channels * filters if kind == "depthwise" else filters
    shape = {"depthwise": (1, *window, outputs), "dense": (filters, channels)}.get(kind, (filters, *window, channels))
    weights = rng.integers(-127, 127, shape, endpoint=True).astype(np.int8)
    if rng.integers(3) == 0:
        weights[:] = rng.choice(np.array([-127, 127]))
    bias = rng.integers(-(10 ** int(rng.integers(1, 13))), 10 ** int(rng.integers(1, 13)), outputs)
    scales = rng.uniform(0.001, 0.03, outputs).astype(np.float32)
    axis = 3 if kind == "depthwise" else 0
    weight_quant = Quant(scales.tolist(), axis=axis) if outputs > 1 else Quant(float(scales[0]))
    x_shape = (2, *size, channels)
    options: dict[str, Any] = {"activation": activation, "dtype": np.int16}
    # The convolutions' kernel can shift left by at most 7 bits.
    y_quant = Quant(float(np.float32(max(scale, 2e-4 * scales.max() / 64))))
    if kind == "dense":
        data = models.fully_connected_model((size[0], channels), weights, bias, X16, weight_quant, y_quant, **options)
    elif kind == "transposed":
        least = [n * s if padding == "SAME" else (n - 1) * s + k for n, s, k in zip(size, strides, window, strict=True)]
        data = models.transpose_conv_model(
            x_shape, weights, bias, X16, weight_quant, y_quant,
            output_size=(least[0], least[1]), strides=strides, padding=padding, **options,
        )  # fmt: skip
    else:
        make = models.depthwise_conv2d_model if kind == "depthwise" else models.conv2d_model
        data = make(
            x_shape, weights, bias, X16, weight_quant, y_quant,
            strides=strides, padding=padding, dilation=dilation, **options,
        )  # fmt: skip
    assert_equal_on_extremes(data)


def assert_equal_on_extremes(data: bytes) -> None:
    module = import_model(data).module
    reference, default = (litert.interpreter(data, reference=reference) for reference in (True, False))
    rng = np.random.default_rng(0)
    for x in (None, INT16.min, INT16.max):
        inputs: list[Array] = litert.random_inputs(reference, rng)
        inputs = inputs if x is None else [np.full_like(inputs[0], x)]
        for mode, runtime in ((LITERT_REFERENCE, reference), (XNNPACK, default)):
            (expected,) = litert.run(runtime, inputs)
            (actual,) = oracle.run(module, get_mode(mode), inputs)
            np.testing.assert_array_equal(actual, expected, f"{mode}, {x}")


@pytest.mark.parametrize("bias", [np.array([0, 10**11, -(10**11)]), None], ids=["bias", "no bias"])
@pytest.mark.parametrize("scales", [0.01, [0.01, 0.02, 0.03]], ids=["one scale", "scales"])
def test_dense_layer_beyond_32_bits(scales: float | list[float], bias: Array | None) -> None:
    """Without a bias, LiteRT's default kernel computes sums in 32 bits, which wrap around. The mode `xnnpack` does the
    same.
    """
    weights = np.full((3, 2000), -127, np.int8)
    weights[1] = np.arange(2000) % 128
    for scale in (1.0, 0.7e-3, 1e-5):
        data = models.fully_connected_model((8, 2000), weights, bias, X16, Quant(scales), Quant(scale), dtype=np.int16)
        assert_equal_on_extremes(data)


@pytest.mark.parametrize("mode", MODES)
def test_real_values_beyond_32_bits(mode: str) -> None:
    """Positive and negative values beyond 32 bits become the smallest value."""
    data = models.quantize_model((1, 8), np.float32, None, np.int16, X16)
    real = np.array([[1e6, -1e6, np.inf, -np.inf, 6.4e5, 6.5e5, -6.4e5, 20.0]], np.float32)
    (expected,) = litert.run(litert.interpreter(data, reference=mode == LITERT_REFERENCE), [real])
    (actual,) = oracle.run(import_model(data).module, get_mode(mode), [real])
    np.testing.assert_array_equal(actual, expected)
    assert (actual[0, 0], actual[0, 4]) == (INT16.min, INT16.max)


@pytest.mark.parametrize(("name", "scale"), [("LOGISTIC", 2**-12), ("TANH", 2**-12), ("TANH", 2**-11)])
def test_exact_scales_have_another_kernel_by_default(name: str, scale: float) -> None:
    data = models.activation_model(name, (256, 256), np.int16, Quant(scale), FRACTION16)
    assert_oracle_equals_litert(data, samples=1)
    with pytest.raises(UnsupportedOperator, match="a kernel that is not reproduced"):
        assert_oracle_equals_litert(data, samples=1, numerics=XNNPACK)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (lambda: models.binary_model("ADD", (4,), (4,), np.int16, Quant(0.25), Quant(0.5), Quant(0.25)), "with shifts"),
        (lambda: models.activation_model("TANH", (1, 4), np.int16, X16, Y16), "its kernel writes scale 1/32768"),
        (lambda: models.activation_model("RELU", (1, 4), np.int16, Quant(1e-3, 5), Y16), "whose zero point is not 0"),
        (
            lambda: models.fully_connected_model(
                (1, 4), np.ones((2, 4), np.int8), np.ones(2, np.int32), X16, Quant(0.1), Y16, dtype=np.int16,
                bias_type=schema.TensorType.FLOAT32,
            ),
            "has a bias of int32, but LiteRT reads it as int64",
        ),
        (
            lambda: models.concatenation_model([(1, 2), (1, 2)], np.int16, [X16, Y16], Y16),
            "joins int16 inputs whose scales differ",
        ),
    ],
)  # fmt: skip
def test_refused(data, what: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Unsupported, match=what):
        import_model(data())
