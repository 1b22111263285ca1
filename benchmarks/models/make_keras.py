"""Networks with random seeded weights as TFLite files: float32, and int8 with per-channel weights.

Runs in the environment `tensorflow`:

    python -m benchmarks.models.make_keras resnet18 int8 --images FOLDER --output resnet18.int8.tflite
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

from benchmarks.models.keras_networks import build
from benchmarks.models.samples import SAMPLES, Reals

_CALIBRATION, _STATISTICS = 32, 16  # samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=SAMPLES)
    parser.add_argument("kind", choices=["int8", "fp32"])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    samples = SAMPLES[arguments.network].batch(arguments.images, _CALIBRATION)
    keras.utils.set_random_seed(0)
    model = build(arguments.network)
    randomize(model)
    model.call(tf.constant(samples[:_STATISTICS]), training=True)  # the momentum is 0, so this sets the statistics
    arguments.output.write_bytes(convert(model, arguments.kind, samples))


def randomize(model: Any) -> None:
    """Applies He's initialization, and sets the affine part of each batch normalization near (1, 0)."""
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


def convert(model: Any, kind: str, samples: Reals) -> bytes:
    def calibration() -> Iterator[list[Any]]:
        return ([samples[index : index + 1]] for index in range(len(samples)))

    with tempfile.TemporaryDirectory() as folder:
        converter = _converter(model, samples.shape[1:], folder)
        if kind == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = calibration
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        return bytes(converter.convert())


def _converter(model: Any, shape: tuple[int, ...], folder: str) -> Any:
    if isinstance(model, keras.Model):
        model.export(folder, verbose=False)
        return tf.lite.TFLiteConverter.from_saved_model(folder)
    call = tf.function(model).get_concrete_function(tf.TensorSpec((1, *shape), tf.float32))
    return tf.lite.TFLiteConverter.from_concrete_functions([call], model)


if __name__ == "__main__":
    main()
