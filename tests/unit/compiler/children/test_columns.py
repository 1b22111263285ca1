"""The operand columns by which a layer's weights are multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.children import columns
from service.compiler.importers.onnx.importer import import_model
from service.compiler.messages.observing import Windows
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder

SHAPE = (1, 6, 9, 8)
PLAIN = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "auto_pad": "NOTSET"}


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pads": (1, 0, 2, 1)},
        {"strides": (2, 3), "pads": (1, 1, 1, 1)},
        {"dilations": (2, 1)},
        {"auto_pad": "SAME_UPPER", "strides": (2, 2)},
        {"auto_pad": "SAME_LOWER", "strides": (2, 2)},
        {"auto_pad": "VALID"},
    ],
)
def test_weights_times_columns_equal_the_convolution(settings: dict[str, Any], groups: int) -> None:
    rng, model = np.random.default_rng(0), OnnxBuilder()
    x, weights = rng.normal(0, 1, SHAPE).astype(np.float32), rng.normal(0, 1, (12, 6 // groups, 3, 2))
    attributes: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
    }
    model.input("x", "float32", SHAPE)
    operands = ["x", model.constant(weights, "float32")]
    model.output(model.node("Conv", operands, kernel_shape=[3, 2], group=groups, **attributes), "float32")
    (real,) = oracle.run(import_model(model.build()).module, get_mode(ONNXRUNTIME), [x])
    windows = Windows((3, 2), groups=groups, **{**PLAIN, **settings})
    found = columns.columns(x, windows)
    made = weights.reshape(groups, 12 // groups, -1) @ found
    np.testing.assert_allclose(made.reshape(12, -1), real.reshape(12, -1), atol=1e-4)
    np.testing.assert_allclose(columns.means(x, windows), found.mean(axis=2), atol=1e-6)


def test_products_count_columns_and_sum_them_up() -> None:
    x = np.random.default_rng(0).normal(0, 1, (3, 5, 4)).astype(np.float32)
    rows = x.reshape(15, 4).astype(np.float64)
    (found,) = columns.products(x, Windows())
    np.testing.assert_allclose(found[:4, :4], rows.T @ rows)
    np.testing.assert_allclose(found[4], [*rows.sum(axis=0), 15])


def test_only_a_limited_number_of_columns_is_used() -> None:
    x = np.arange(10_000, dtype=np.float32).reshape(1, 5_000, 2)
    (found,) = columns.columns(x, Windows(), 100)
    assert found.shape == (2, 100)
    assert (found[0, 0], found[0, -1]) == (0, 9998)
    assert (np.diff(found[0]) > 0).all()


def test_a_window_survives_a_round_trip_through_json() -> None:
    windows = Windows((3, 3), (1, 2), (1, 1), (0, 0, 1, 1), "VALID", 4)
    assert Windows.from_json(windows.to_json()) == windows
    assert Windows.from_json(Windows().to_json()) == Windows()
