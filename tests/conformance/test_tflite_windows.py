"""Convolutions and pools of every geometry. They are imported, run by the oracle, and compared with LiteRT's reference
kernels.
"""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support import tflite_models as models
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.examples import examples
from tests.support.litert import MODES
from tests.support.tflite_builder import Quant
from tests.support.tflite_models import output_size

SMALL = st.integers(1, 3)
PAIRS = st.tuples(SMALL, SMALL)
SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))
PADDINGS = st.sampled_from(["SAME", "VALID"])
ACTIVATIONS = st.sampled_from(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
DTYPES = st.sampled_from([np.int8, np.uint8])
EXAMPLES = settings(max_examples=examples(60), deadline=None, derandomize=True)


def fits(size: tuple[int, int], window: tuple[int, int], dilation: tuple[int, int]) -> bool:
    return all(output_size(s, w, 1, d, "VALID") > 0 for s, w, d in zip(size, window, dilation, strict=True))


def quant(dtype: type, scale: float, rng: np.random.Generator) -> Quant:
    """Returns a quantization with any zero point, which is often at an end of the range."""
    limits = np.iinfo(dtype)
    candidates = (int(limits.min), int(limits.max), int(rng.integers(limits.min, limits.max)))
    return Quant(scale, candidates[int(rng.integers(3))])


@EXAMPLES
@given(SIZES, PAIRS, PAIRS, PAIRS, PADDINGS, ACTIVATIONS, DTYPES, st.booleans(), st.integers(0, 1 << 32))
def test_convolution(
    size: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: str,
    activation: str,
    dtype: type,
    depthwise: bool,
    seed: int,
) -> None:
    assume(padding == "SAME" or fits(size, window, dilation))
    rng = np.random.default_rng(seed)
    channels, filters = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    shape = (1, *window, channels * filters) if depthwise else (filters, *window, channels)
    outputs = shape[3] if depthwise else shape[0]
    limits = np.iinfo(dtype)
    weights = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if dtype == np.int8 and rng.integers(2):
        scales = rng.uniform(0.001, 0.03, outputs).astype(np.float32).tolist()
        weight_quant = Quant(scales, 0, axis=3 if depthwise else 0)
    else:
        weight_quant = Quant(0.013, 0) if dtype == np.int8 else quant(dtype, 0.013, rng)
    y_quant = Quant(0.037, int(rng.integers(-20, 21)) + (128 if dtype == np.uint8 else 0))
    make = models.depthwise_conv2d_model if depthwise else models.conv2d_model
    data = make(
        (int(rng.integers(1, 3)), *size, channels),
        weights,
        rng.integers(-2000, 2000, outputs).astype(np.int32),
        quant(dtype, 0.02, rng),
        weight_quant,
        y_quant,
        strides=strides,
        padding=padding,
        dilation=dilation,
        activation=activation,
    )
    assert_oracle_equals_litert(data, samples=2)


@EXAMPLES
@given(
    SIZES,
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    PAIRS,
    PADDINGS,
    ACTIVATIONS,
    DTYPES,
    st.integers(0, 1 << 32),
)
def test_transposed_convolution(
    size: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    padding: str,
    activation: str,
    dtype: type,
    seed: int,
) -> None:
    """Tests every output size from which a convolution computes `size`, in both modes."""
    rng = np.random.default_rng(seed)
    channels, filters = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    limits = np.iinfo(dtype)
    weights = rng.integers(limits.min, limits.max, (filters, *window, channels), dtype=dtype, endpoint=True)
    per_axis = dtype == np.int8 and bool(rng.integers(2))
    scales = rng.uniform(0.001, 0.03, filters).astype(np.float32).tolist()
    symmetric = Quant(scales if per_axis else 0.013)
    least = [n * s if padding == "SAME" else (n - 1) * s + k for n, s, k in zip(size, strides, window, strict=True)]
    by = [int(rng.integers(1 - s, 1)) if padding == "SAME" else int(rng.integers(0, s)) for s in strides]
    data = models.transpose_conv_model(
        (int(rng.integers(1, 3)), *size, channels),
        weights,
        rng.integers(-2000, 2000, filters).astype(np.int32) if rng.integers(2) else None,
        quant(dtype, 0.02, rng),
        symmetric if dtype == np.int8 else quant(dtype, 0.013, rng),
        Quant(1.1, int(rng.integers(-20, 21)) + (128 if dtype == np.uint8 else 0)),
        output_size=(least[0] + by[0], least[1] + by[1]),
        strides=strides,
        padding=padding,
        activation=activation,
    )
    for numerics in MODES:
        assert_oracle_equals_litert(data, samples=2, numerics=numerics)


@EXAMPLES
@given(
    st.sampled_from(["AVERAGE_POOL_2D", "MAX_POOL_2D"]),
    SIZES,
    PAIRS,
    PAIRS,
    PADDINGS,
    st.sampled_from(["NONE", "RELU6"]),
    DTYPES,
    st.integers(0, 1 << 32),
)
def test_pool(
    name: str,
    size: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    padding: str,
    activation: str,
    dtype: type,
    seed: int,
) -> None:
    assume(padding == "SAME" or fits(size, window, (1, 1)))
    middle = Quant(0.06, 3 + (128 if dtype == np.uint8 else 0))
    data = models.pool2d_model(
        name, (1, *size, 3), dtype, middle, window=window, strides=strides, padding=padding, activation=activation
    )
    assert_oracle_equals_litert(data, samples=2)
