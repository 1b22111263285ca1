"""Tests of the inputs that artifacts are verified with."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.models.signature import DATATYPES, Bounds, ModelSignature, Quantization, TensorSpec
from service.core.verification.vectors import EXTREMES, sample_inputs, sample_kinds

SHAPES = [(), (1,), (0, 3), (7,), (1, 490), (1, 49, 10, 1), (1, 8, 8, 3), (2, 5, 5, 4)]
HASH = "b21d717bcdd9ea90e21e52c208df6b70403b0ceb9725eec01e0a6178f41f3752"


EACH = 3  # the order repeats after three inputs: an extreme, a random and a smooth one


def inputs_of(
    datatype: str,
    *shape: int,
    samples: int = EACH * len(EXTREMES),
    zero_point: int | None = None,
    bounds: Bounds | None = None,
) -> list[Any]:
    quantization = None if zero_point is None else Quantization(0.5, zero_point)
    signature = ModelSignature((TensorSpec("x", datatype, shape, quantization, bounds),), ())
    return [sample[0] for sample in sample_inputs(signature, samples)]


def extreme(name: str, datatype: str, *shape: int, zero_point: int | None = None) -> NDArray[Any]:
    found: NDArray[Any] = inputs_of(datatype, *shape, zero_point=zero_point)[EACH * [*EXTREMES].index(name)]
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_input_has_the_shape_and_type_of_the_signature(datatype: str, shape: tuple[int, ...]) -> None:
    inputs = inputs_of(datatype, *shape, samples=21)
    assert {(value.shape, value.dtype) for value in inputs} == {(shape, np.dtype(DATATYPES[datatype]))}
    assert all(np.isfinite(value).all() for value in inputs)


@pytest.mark.parametrize("shape", [(16,), (1, 490), (1, 49, 10, 1), (1, 8, 8, 3), (2, 5, 5, 4)], ids=str)
@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name != "BOOL"])
def test_ten_extremes_differ_from_each_other(datatype: str, shape: tuple[int, ...]) -> None:
    assert len({value.tobytes() for value in inputs_of(datatype, *shape)[::EACH]}) == 10


def steps(value: NDArray[Any]) -> float:
    """Returns the mean difference of neighboring elements in a row."""
    return float(np.abs(np.diff(value.astype(np.float64), axis=2)).mean())


def test_extreme_random_and_smooth_inputs_alternate() -> None:
    inputs = inputs_of("UINT8", 1, 64, 64, 3, samples=50)
    kinds = ["random" if 80 < steps(value) < 90 else "smooth" if 0 < steps(value) < 20 else "" for value in inputs[30:]]
    assert kinds == ["random", "smooth"] * 10
    assert all(80 < steps(value) < 90 for value in inputs[1:30:EACH])
    assert all(0 < steps(value) < 20 for value in inputs[2:30:EACH])


@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name != "BOOL"])
def test_smooth_inputs_cover_at_least_half_of_their_range(datatype: str) -> None:
    bounds = Bounds(-2.0, 6.0) if datatype.startswith("FP") else None
    low, high = (
        (-2.0, 6.0) if bounds else (float(np.iinfo(DATATYPES[datatype]).min), float(np.iinfo(DATATYPES[datatype]).max))
    )
    for value in inputs_of(datatype, 1, 32, 32, 3, bounds=bounds)[2::EACH]:
        lowest, highest = float(value.min()), float(value.max())
        assert low <= lowest < highest <= high
        assert highest - lowest >= 0.499 * (high - low)


@pytest.mark.parametrize("datatype", ["INT32", "INT64", "UINT8"])
def test_integers_stay_within_their_bounds(datatype: str) -> None:
    values = np.stack(inputs_of(datatype, 1, 64, samples=60, bounds=Bounds(0, 39)))
    assert set(np.unique(values).tolist()) == set(range(40))


def test_random_floats_exceed_their_bounds_slightly() -> None:
    values = np.stack(inputs_of("FP32", 1, 4096, bounds=Bounds(-1.0, 3.0))[1::EACH])
    assert (values.min(), values.max()) == (pytest.approx(-2, abs=0.01), pytest.approx(4, abs=0.01))


def test_a_smooth_input_of_one_element_is_within_bounds() -> None:
    assert all(0 <= value[0] <= 4 for value in inputs_of("INT64", 1, samples=100, bounds=Bounds(0, 4)))


def test_kinds_name_the_inputs_in_order() -> None:
    kinds, inputs = sample_kinds(110), inputs_of("UINT8", 1, 8, 8, 3, samples=110)
    assert kinds[:6] == ["minimum", "random", "smooth", "maximum", "random", "smooth"]
    uniform = [kind for kind, value in zip(kinds, inputs, strict=True) if len(np.unique(value)) == 1]
    assert uniform == ["minimum", "maximum", "middle"]


def test_fewer_samples_are_the_first_of_more() -> None:
    few, many = inputs_of("UINT8", 1, 4, 4, 3, samples=13), inputs_of("UINT8", 1, 4, 4, 3, samples=20)
    for ours, theirs in zip(few, many[:13], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_inputs_do_not_change_between_releases() -> None:
    """If this fails, existing artifacts cannot be verified any more: give `Report.VECTORS` a new version, and update
    `HASH`.
    """
    found = b"".join(value.tobytes() for value in inputs_of("INT8", 1, 6, 6, 3, samples=24, zero_point=-1))
    assert hashlib.sha256(found).hexdigest() == HASH


def test_extremes_of_integers_are_the_ends_of_their_type() -> None:
    assert extreme("minimum", "INT8", 2, 2).tolist() == [[-128, -128], [-128, -128]]
    assert extreme("maximum", "INT64", 1).tolist() == [2**63 - 1]
    assert extreme("alternating", "UINT8", 2, 2).tolist() == [[255, 0], [255, 0]]


def test_middle_is_the_zero_point() -> None:
    assert extreme("middle", "UINT8", 2, zero_point=3).tolist() == [3, 3]
    assert extreme("middle", "UINT8", 2).tolist() == [128, 128]
    assert extreme("middle", "INT8", 2).tolist() == [0, 0]
    assert extreme("middle", "FP32", 2).tolist() == [0.0, 0.0]


def test_rows_alternate_in_pairs() -> None:
    rows = extreme("rows", "UINT8", 1, 5, 2, 3)
    assert [set(row.ravel().tolist()) for row in rows[0]] == [{255}, {255}, {0}, {0}, {255}]


def test_channels_alternate() -> None:
    channels = extreme("channels", "UINT8", 1, 2, 2, 3)
    assert [set(channels[..., c].ravel().tolist()) for c in range(3)] == [{0}, {255}, {0}]


def test_ramp_takes_every_value_of_8_bits() -> None:
    assert extreme("ramp", "INT8", 300).tolist() == [*range(-128, 128), *range(-128, -84)]


def test_ramp_goes_from_one_end_to_the_other() -> None:
    assert extreme("ramp", "INT64", 3).tolist() == [-(2**63), -1, 2**63 - 1]
    assert extreme("ramp", "UINT8", 1, 6).tolist() == [[0, 51, 102, 153, 204, 255]]
    assert extreme("ramp", "FP32", 3).tolist() == [-16.0, 0.0, 16.0]


def test_one_element_differs_from_all_others() -> None:
    assert extreme("one maximum", "UINT8", 3, 3).tolist() == [[0, 0, 0], [0, 255, 0], [0, 0, 0]]
    assert extreme("one minimum", "UINT8", 3).tolist() == [255, 0, 255]


def test_coins_of_several_inputs_are_independent() -> None:
    signature = ModelSignature((TensorSpec("a", "INT8", (64,)), TensorSpec("b", "UINT8", (64,))), ())
    first, second = sample_inputs(signature, 30)[EACH * [*EXTREMES].index("coins")]
    assert {*zip(first.tolist(), second.tolist(), strict=True)} == {(a, b) for a in (-128, 127) for b in (0, 255)}
