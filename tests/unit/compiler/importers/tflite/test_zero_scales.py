"""A filter with scale 0 gives the same result as in LiteRT: the zero point, whatever its weights are."""

from __future__ import annotations

import numpy as np
import pytest

from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support import tflite_models as models
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.tflite_builder import Quant

X, Y = Quant(0.05, -3), Quant(0.1, 7)
RNG = np.random.default_rng(0)
SCALES = [0.02, 0.0, 0.01, 0.0]
BIAS = np.array([5, -7, 9, 0], np.int32)


def weights(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape).astype(np.int8)


MODELS = {
    "conv": models.conv2d_model((1, 5, 5, 3), weights(4, 3, 3, 3), BIAS, X, Quant(SCALES), Y),
    "depthwise": models.depthwise_conv2d_model((1, 5, 5, 4), weights(1, 3, 3, 4), BIAS, X, Quant(SCALES, axis=3), Y),
    "dense": models.fully_connected_model((2, 8), weights(4, 8), BIAS, X, Quant(SCALES), Y),
    "transposed": models.transpose_conv_model(
        (1, 4, 5, 3), weights(4, 3, 3, 3), BIAS, X, Quant(SCALES), Y, output_size=(8, 10), strides=(2, 2)
    ),
    "dense, one scale": models.fully_connected_model((2, 8), weights(4, 8), None, X, Quant(0.0), Y),
}


# If a layer's only scale is 0, LiteRT's default delegate refuses the layer.
CASES = [(name, mode) for name in MODELS for mode in (LITERT_REFERENCE, XNNPACK) if "one scale" not in name]


@pytest.mark.parametrize(("name", "mode"), [*CASES, ("dense, one scale", LITERT_REFERENCE)])
def test_filters_of_scale_0_equal_litert(name: str, mode: str) -> None:
    assert_oracle_equals_litert(MODELS[name], samples=2, numerics=mode)
