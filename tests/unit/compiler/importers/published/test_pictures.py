"""Tests of the preprocessing of pictures that `preprocessor_config.json` defines."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.compiler.importers.published.pictures import read_input_size, read_pictures
from service.core.errors import Unsupported
from service.core.models.metadata import NOTHING, Channels, ModelMetadata, Resample
from service.core.models.signature import TensorSpec
from service.runtime.image import decode
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
        (  # DeiT: a number is the height and the width, although the picture is cropped afterwards
            {**HALF, "size": 256, "do_center_crop": True, "feature_extractor_type": "DeiTFeatureExtractor"},
            ModelMetadata(mean=ONE, std=ONE, resize_to=(256, 256)),
        ),
        (  # CLIP: a number is the shorter edge
            {**HALF, "size": 256, "image_processor_type": "CLIPImageProcessorFast"},
            ModelMetadata(mean=ONE, std=ONE, resize_to=(256,)),
        ),
        (
            {**HALF, "size": 224, "feature_extractor_type": "ConvNextFeatureExtractor"},
            ModelMetadata(mean=ONE, std=ONE, resize_to=(256,)),
        ),
        (
            {**HALF, "size": 224, "feature_extractor_type": "LevitFeatureExtractor"},
            ModelMetadata(mean=ONE, std=ONE, resize_to=(256,)),
        ),
        (
            {
                **HALF,
                "size": {"shortest_edge": 450},
                "crop_pct": 0.9,
                "image_processor_type": "PoolFormerImageProcessor",
            },
            ModelMetadata(mean=ONE, std=ONE, resize_to=(500,)),
        ),
        (
            {
                "size": 288,
                "do_resize": True,
                "do_flip_channels": True,
                "feature_extractor_type": "MobileViTFeatureExtractor",
            },
            ModelMetadata(mean=(0.0,), std=(1.0,), resize_to=(288,), channels=Channels.BGR),
        ),
        (  # EfficientNet divides by the deviation twice, unless its last layers are missing
            {**HALF, "size": {"height": 9, "width": 9}, "image_processor_type": "EfficientNetImageProcessor"},
            ModelMetadata(mean=ONE, std=(0.25, 0.25, 0.25), resize_to=(9, 9)),
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
        {**HALF, "size": 800, "max_size": 1333, "do_center_crop": True},
        {**HALF, "size": 800, "feature_extractor_type": "DetrFeatureExtractor"},
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


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"size": 256, "crop_size": 224, "do_center_crop": True}, (224, 224)),
        ({"size": {"height": 3, "width": 5}}, (3, 5)),
        ({"size": 224, "crop_pct": 0.875}, (224, 224)),
        ({"size": {"shortest_edge": 224}, "image_processor_type": "ConvNextImageProcessor"}, (224, 224)),
        ({"size": 224, "feature_extractor_type": "ViTFeatureExtractor"}, (224, 224)),
        ({"size": 224, "feature_extractor_type": "DetrFeatureExtractor"}, None),
        ({"size": {"shortest_edge": 224}}, None),
        ({}, None),
    ],
)
def test_the_size_after_the_preprocessing_is_known_if_it_is_the_same_for_all(
    tmp_path: Path, config: dict[str, Any], size: tuple[int, int] | None
) -> None:
    assert read_input_size(write(tmp_path, {"preprocessor_config.json": config})) == size


def test_the_pixels_are_those_of_transformers(tmp_path: Path) -> None:
    """The values are those of MobileViTImageProcessorPil of transformers 5.24.0, for one pixel."""
    metadata = read(tmp_path, {"size": 2, "do_resize": True, "feature_extractor_type": "MobileViTFeatureExtractor"})
    picture = BytesIO()
    Image.new("RGB", (3, 3), (255, 102, 51)).save(picture, "PNG")
    tensor = decode(picture.getvalue(), TensorSpec("x", "FP32", (1, 3, 2, 2)), metadata)
    assert tensor[0, :, 0, 0].tolist() == np.array([0.2, 0.4, 1], np.float32).tolist()
