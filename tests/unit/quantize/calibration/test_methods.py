"""A calibration method chooses a tensor's type from the statistics of its values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from service.compiler.children.observing_roles import histogram
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.builds.quantization import Method
from service.quantize.calibration.methods import BINS, METHODS, Statistics, affine, minmax, real, stored

RNG = np.random.default_rng(0)
Values = np.ndarray[Any, np.dtype[np.float32]]


def statistics_of(values: Values) -> Statistics:
    """Returns the statistics of rows, where each row is an input."""
    counts = histogram(values, float(values.min()), float(values.max()), BINS)
    return Statistics("x", values.min(axis=1), values.max(axis=1), counts)


def noise(values: Values, method: str, storage: str = "uint8") -> float:
    kind = METHODS[method](statistics_of(values), storage)
    return float(((real(stored(values, kind), kind) - values) ** 2).mean())


BELL = RNG.normal(0.5, 1, (8, 4000)).astype(np.float32)
WITH_OUTLIER = np.concatenate([BELL, np.full((8, 1), 40, np.float32) * RNG.uniform(0, 1, (8, 1))], axis=1).astype("f4")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("storage", ["uint8", "int8"])
@pytest.mark.parametrize(
    "values", [BELL, np.abs(BELL), -np.abs(BELL), BELL + 9, np.zeros((2, 9), np.float32), np.full((2, 9), 1e-30, "f4")]
)
def test_zero_is_stored_exactly_and_scales_are_positive(method: str, storage: str, values: Values) -> None:
    kind = METHODS[method](statistics_of(values), storage)
    assert kind.storage == storage
    assert kind.scales[0] > 0
    assert real(stored(np.zeros(1), kind), kind)[0] == 0


@pytest.mark.parametrize("method", ["minmax", "mse", "kl", "percentile"])
def test_without_outliers_values_are_stored_within_a_step(method: str) -> None:
    assert noise(BELL, method) < (BELL.max() - BELL.min()) ** 2 / 255**2


def test_minmax_covers_exactly_the_extremes() -> None:
    kind = minmax(statistics_of(BELL), "uint8")
    least, most = STORAGE_RANGES["uint8"]
    assert stored(np.array([BELL.min(), BELL.max()]), kind).tolist() == [least, most]


def test_the_method_noise_has_the_least_noise() -> None:
    measured = {method: noise(WITH_OUTLIER, method) for method in METHODS}
    assert measured["mse"] <= min(measured.values()) * 1.02, (
        measured
    )  # the method minimizes the error of a histogram rather than that of the values
    assert measured["mse"] < measured["minmax"]


@pytest.mark.parametrize("method", ["percentile", "kl", "moving-average"])
def test_outliers_are_cut(method: str) -> None:
    assert (
        METHODS[method](statistics_of(WITH_OUTLIER), "uint8").scales[0]
        < minmax(statistics_of(WITH_OUTLIER), "uint8").scales[0]
    )


def test_powers_of_two() -> None:
    kind = METHODS["power-of-two"](statistics_of(BELL), "int8")
    assert math.log2(kind.scales[0]).is_integer()
    assert kind.zero_points == (0,)
    assert 64 * kind.scales[0] <= np.abs(BELL).max() <= 128 * kind.scales[0]
    assert METHODS["power-of-two"](statistics_of(np.abs(BELL)), "uint8").zero_points == (0,)


def test_a_histogram_counts_every_value() -> None:
    counts = histogram(BELL, float(BELL.min()), float(BELL.max()), BINS)
    assert counts.sum() == BELL.size
    theirs, _ = np.histogram(BELL, BINS)
    assert np.abs(np.cumsum(counts) - np.cumsum(theirs)).max() <= 3, "values at an edge may round into the next bin"


def test_a_range_always_includes_zero() -> None:
    assert affine(3, 5, "uint8") == affine(0, 5, "uint8")
    assert affine(-5, -3, "int8") == affine(-5, 0, "int8")


def test_the_command_names_every_method() -> None:
    assert [method.value for method in Method] == list(METHODS)
