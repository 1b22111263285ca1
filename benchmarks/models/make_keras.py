"""Networks with random seeded weights as TFLite files: float32, and int8 with per-channel weights.

Runs in the environment `tensorflow`:

    python -m benchmarks.models.make_keras resnet18 int8 --images FOLDER --output resnet18.int8.tflite

The ResNets are v1.5 (the stride is on the 3x3), so that their multiply-accumulates equal torchvision's; the others are
those of keras.applications.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]
from keras import layers

from benchmarks.models.photographs import photographs

SIZES = {"resnet18": 224, "resnet50": 224, "mobilenet_v2": 224, "inception_v3": 299}
_CALIBRATION, _STATISTICS = 32, 16  # photographs

Tensor = Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=SIZES)
    parser.add_argument("kind", choices=["int8", "fp32"])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    images = photographs(arguments.images, _CALIBRATION, SIZES[arguments.network])
    keras.utils.set_random_seed(0)
    model = build(arguments.network)
    randomize(model)
    model.call(tf.constant(images[:_STATISTICS]), training=True)  # the momentum is 0: sets the statistics
    arguments.output.write_bytes(convert(model, arguments.kind, images))


def build(name: str) -> Any:
    size = SIZES[name]
    image = layers.Input((size, size, 3), batch_size=1)
    if name.startswith("resnet"):
        return keras.Model(image, resnet(image, name))
    applications = {
        "mobilenet_v2": keras.applications.MobileNetV2,
        "inception_v3": keras.applications.InceptionV3,
    }
    return applications[name](input_tensor=image, weights=None, classifier_activation=None)


def resnet(image: Tensor, name: str) -> Tensor:
    wide = name == "resnet50"  # bottleneck blocks, whose outputs have four times the channels
    x = convolution(image, 64, 7, 2)
    x = layers.MaxPool2D(3, 2, "same")(x)
    for stage, blocks in enumerate([3, 4, 6, 3] if wide else [2, 2, 2, 2]):
        channels = 64 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            if wide:
                y = convolution(convolution(x, channels, 1), channels, 3, stride)
                y = convolution(y, 4 * channels, 1, activation=False)
            else:
                y = convolution(convolution(x, channels, 3, stride), channels, 3, activation=False)
            if x.shape[-1] != y.shape[-1] or stride != 1:
                x = convolution(x, y.shape[-1], 1, stride, activation=False)
            x = layers.ReLU()(layers.Add()([y, x]))
    return layers.Dense(1000)(layers.GlobalAveragePooling2D()(x))


def convolution(x: Tensor, channels: int, kernel: int, stride: int = 1, activation: bool = True) -> Tensor:
    x = layers.Conv2D(channels, kernel, stride, "same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if activation else x


def randomize(model: Any) -> None:
    """He's initialization; the affine part of each batch normalization near (1, 0)."""
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, layers.Conv2D | layers.DepthwiseConv2D):
            kernel, *rest = layer.get_weights()
            fan_in = np.prod(kernel.shape[: 2 if isinstance(layer, layers.DepthwiseConv2D) else 3])
            layer.set_weights([rng.normal(0, np.sqrt(2 / fan_in), kernel.shape), *rest])
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.0
            for variable in layer.weights:
                if variable.name.endswith("gamma"):
                    variable.assign(rng.uniform(0.6, 1.4, variable.shape))
                if variable.name.endswith("beta"):
                    variable.assign(rng.normal(0, 0.2, variable.shape))


def convert(model: Any, kind: str, images: np.ndarray[Any, np.dtype[np.float32]]) -> bytes:
    def calibration() -> Iterator[list[Any]]:
        return ([images[index : index + 1]] for index in range(len(images)))

    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if kind == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = calibration
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        return bytes(converter.convert())


if __name__ == "__main__":
    main()
