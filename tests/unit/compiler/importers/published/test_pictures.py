"""Tests of the preprocessing of pictures that `preprocessor_config.json` defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.compiler.importers.published.pictures import read_pictures
from service.core.errors import Unsupported
from service.core.models.metadata import NOTHING, ModelMetadata, Resample
from tests.support.published_model import write

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
ONE = (0.5, 0.5, 0.5)


def read(root: Path, config: dict[str, Any]) -> ModelMetadata:
    return read_pictures(write(root, {"preprocessor_config.json": config}))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (  # ViT
            {**HALF, "do_normalize": True, "do_resize": True, "resample": 2, "size": {"height": 224, "width": 200}},
            ModelMetadata(mean=ONE, std=ONE, resample=Resample.BILINEAR, resize_to=(224, 200)),
        ),
        (  # CLIP
            {**HALF, "size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": True, "resample": 3},
            ModelMetadata(mean=ONE, std=ONE, resample=Resample.BICUBIC, resize_to=(256,)),
        ),
        (  # ConvNext and ResNet
            {**HALF, "size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3},
            ModelMetadata(mean=ONE, std=ONE, resample=Resample.BICUBIC, resize_to=(256,)),
        ),
        (
            {**HALF, "size": 384, "crop_pct": 0.875},
            ModelMetadata(mean=ONE, std=ONE, resize_to=(384, 384)),
        ),
        ({**HALF, "size": 224, "do_resize": True}, ModelMetadata(mean=ONE, std=ONE, resize_to=(224, 224))),
        ({**HALF, "size": 256, "do_center_crop": True}, ModelMetadata(mean=ONE, std=ONE, resize_to=(256,))),
        ({"do_resize": False, "do_normalize": False}, ModelMetadata(mean=(0.0,), std=(1.0,))),
        (
            {"do_resize": False, "do_normalize": False, "do_rescale": False},
            ModelMetadata(mean=(0.0,), std=(1 / 255,)),
        ),
        (  # EfficientNet
            {"do_resize": False, "do_normalize": False, "rescale_factor": 1 / 127.5, "rescale_offset": True},
            ModelMetadata(mean=(0.5,), std=(0.5,)),
        ),
    ],
)
def test_the_steps_become_metadata(tmp_path: Path, config: dict[str, Any], expected: ModelMetadata) -> None:
    assert read(tmp_path, config) == expected


@pytest.mark.parametrize("config", [{}, {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 16000}])
def test_a_file_about_something_else_defines_nothing(tmp_path: Path, config: dict[str, Any]) -> None:
    assert read(tmp_path, config) == NOTHING


@pytest.mark.parametrize(
    "config",
    [
        {**HALF, "size": {"shortest_edge": 800, "longest_edge": 1333}},
        {**HALF, "size": {"height": 0, "width": 5}},
        {**HALF, "size": {"height": 10**9, "width": 5}},
        {**HALF, "size": {"shortest_edge": "big"}},
        {**HALF, "size": {"shortest_edge": 10}, "crop_pct": 0},
        {"do_normalize": True, "image_mean": [1, 2], "do_resize": False},
        {"do_normalize": True, "image_mean": "x", "do_resize": False},
    ],
)
def test_steps_that_are_not_computed_are_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        read(tmp_path, config)
