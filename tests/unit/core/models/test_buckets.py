"""Tests of fitting a request to a bucket, and of cutting the padding off its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidTensor
from service.core.models.buckets import check_shape, fit_inputs, merge_buckets
from service.core.models.signature import ModelSignature, TensorSpec

SIZES = (4, 8)


def bucket(length: int, *, pads: bool = True) -> ModelSignature:
    ids, mask = TensorSpec("ids", "INT64", (1, length)), TensorSpec("mask", "INT32", (1, length))
    hidden, pooled = TensorSpec("hidden", "FP32", (1, length, 2)), TensorSpec("pooled", "FP32", (1, 2))
    return ModelSignature((ids, mask), (hidden, pooled), pads=pads)


def model(*, pads: bool = True) -> ModelSignature:
    return merge_buckets([bucket(size, pads=pads) for size in reversed(SIZES)])


def request(length: int) -> list[np.ndarray[Any, Any]]:
    return [np.arange(1, length + 1, dtype=np.int64)[None], np.ones((1, length), np.int32)]


def test_dimensions_that_differ_are_dynamic() -> None:
    assert [spec.shape for spec in model().inputs] == [(1, -1), (1, -1)]
    assert [spec.shape for spec in model().outputs] == [(1, -1, 2), (1, 2)]
    assert [each.inputs[0].shape for each in model().buckets] == [(1, 4), (1, 8)]
    assert model().largest == bucket(8)


@pytest.mark.parametrize(("length", "index"), [(1, 0), (3, 0), (4, 0), (5, 1), (8, 1)])
def test_the_smallest_sufficient_bucket_is_used(length: int, index: int) -> None:
    found = fit_inputs(model(), request(length))
    assert (found.bucket, found.length) == (index, None if length in SIZES else length)
    ids, mask = found.inputs
    assert ids.shape == mask.shape == (1, SIZES[index])
    assert ids[0].tolist() == [*range(1, length + 1), *[0] * (SIZES[index] - length)]
    assert mask.dtype == np.int32


def test_padding_is_cut_off_the_outputs() -> None:
    signature, found = model(), fit_inputs(model(), request(3))
    hidden, pooled = np.arange(8, dtype=np.float32).reshape(1, 4, 2), np.zeros((1, 2), np.float32)
    cut = found.cut(signature, [hidden, pooled])
    assert cut[0].tolist() == [[[0, 1], [2, 3], [4, 5]]]
    assert cut[0].flags.c_contiguous
    assert cut[1] is pooled


@pytest.mark.parametrize("length", [0, 9, 1000])
def test_a_length_above_all_buckets_is_refused(length: int) -> None:
    with pytest.raises(
        InvalidTensor, match=rf"'ids' has shape \[1, {length}\], but the model takes \[1, -1\]"
    ) as caught:
        fit_inputs(model(), request(length))
    assert caught.value.hint == "it is built for [1, 4], [1, 8], and shorter ones are filled up"


def test_without_padding_only_exact_sizes_are_accepted() -> None:
    signature = model(pads=False)
    assert [fit_inputs(signature, request(size)).bucket for size in SIZES] == [0, 1]
    with pytest.raises(InvalidTensor) as caught:
        fit_inputs(signature, request(3))
    assert caught.value.hint == "it is built for [1, 4], [1, 8]"


def test_inputs_of_different_lengths_are_refused() -> None:
    for lengths in ((3, 4), (4, 8)):
        ids, mask = request(lengths[0])[0], request(lengths[1])[1]
        with pytest.raises(InvalidTensor, match="do not go together"):
            fit_inputs(model(), [ids, mask])


@pytest.mark.parametrize("shape", [(), (4,), (2, 4), (1, 4, 1), (1, -4), (1, 0), (1, 1 << 62)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidTensor):
        check_shape(model(), 0, shape)


def test_a_valid_shape_becomes_that_of_the_spec() -> None:
    assert check_shape(model(), 1, [1, 3]) == TensorSpec("mask", "INT32", (1, 3))


def test_another_type_or_number_of_inputs_is_refused() -> None:
    ids, mask = request(4)
    with pytest.raises(InvalidTensor, match="takes INT32"):
        fit_inputs(model(), [ids, mask.astype(np.int64)])
    with pytest.raises(InvalidTensor, match="takes 2 inputs"):
        fit_inputs(model(), [ids])


def test_two_varying_dimensions_need_exact_sizes() -> None:
    def picture(height: int, width: int) -> ModelSignature:
        return ModelSignature(
            (TensorSpec("x", "UINT8", (1, height, width, 3)),), (TensorSpec("y", "UINT8", (1, height, width)),)
        )

    signature = merge_buckets([picture(4, 6), picture(8, 12)])
    assert signature.inputs[0].shape == (1, -1, -1, 3)
    assert fit_inputs(signature, [np.zeros((1, 8, 12, 3), np.uint8)]).bucket == 1
    with pytest.raises(InvalidTensor):
        fit_inputs(signature, [np.zeros((1, 4, 12, 3), np.uint8)])


def test_signatures_of_different_models_are_refused() -> None:
    other = ModelSignature((TensorSpec("x", "UINT8", (1, 4)),), (TensorSpec("y", "UINT8", (1, 4)),))
    with pytest.raises(ValueError, match="not buckets of one model"):
        merge_buckets([bucket(4), other])


def test_the_signature_records_if_inputs_can_be_padded() -> None:
    assert ModelSignature.from_json(bucket(4).to_json()).pads
    assert "pads" not in bucket(4, pads=False).to_json()
