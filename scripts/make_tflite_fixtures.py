"""Creates the TFLite models of tests/fixtures/tflite: whole networks from TensorFlow's converter.

TensorFlow needs an environment of its own (Python 3.11). Keras 2 is only for the LSTM, which the
converter recognizes in the form that Keras 2 writes:

    python -m venv DIR && DIR/bin/pip install tensorflow==2.21.0 tf_keras==2.21.0
    DIR/bin/python scripts/make_tflite_fixtures.py tests/fixtures/tflite

Weights are random and seeded, calibrated on noise. All are int8 except `keywords_hybrid`, of which only the weights are
quantized. The batch is left open, as Keras leaves it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from keras import layers


def detector() -> Any:
    """A small YOLO: leaky ReLUs, nearest-neighbour upsampling, a split, and two concatenated heads."""

    def block(x: Any, filters: int, strides: int = 1) -> Any:
        x = layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(x)
        return layers.LeakyReLU(0.1)(layers.BatchNormalization()(x))

    image = layers.Input((48, 48, 3))
    fine = block(block(image, 16, 2), 16, 2)
    coarse = block(fine, 32, 2)
    x = block(layers.Concatenate()([layers.UpSampling2D(2)(coarse), fine]), 32)
    first, second = keras.ops.split(x, 2, axis=-1)
    x = block(layers.Add()([first, second]), 16)
    heads = []
    for part, size in ((x, 12), (coarse, 6)):
        boxes = layers.Reshape((size * size * 3, 6))(layers.Conv2D(18, 1)(part))
        heads.append(layers.Activation("sigmoid")(boxes))
    return keras.Model(image, layers.Concatenate(axis=1)(heads))


def segmentation() -> Any:
    """A small U-Net: dilated convolutions, PReLU, bilinear upsampling, and a transposed convolution."""
    image = layers.Input((32, 32, 3))
    wide = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    x = layers.MaxPool2D()(wide)
    x = layers.Conv2D(16, 3, padding="same", dilation_rate=2, activation="relu")(x)
    x = layers.DepthwiseConv2D(3, padding="same", dilation_rate=3)(x)
    x = layers.PReLU(shared_axes=[1, 2], alpha_initializer="uniform")(x)
    x = layers.Concatenate()([layers.UpSampling2D(2, interpolation="bilinear")(x), wide])
    x = layers.Conv2DTranspose(8, 3, 2, padding="same")(x)
    return keras.Model(image, layers.Softmax()(layers.Conv2D(4, 3)(layers.ZeroPadding2D(1)(x))))


def transformer() -> Any:
    """A small ViT: attention, layer normalization and GELU."""
    image = layers.Input((32, 32, 3))
    x = layers.Reshape((16, 32))(layers.Conv2D(32, 8, 8)(image))
    for _ in range(2):
        normal = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 16)(normal, normal)])
        hidden = layers.Dense(64, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(32)(hidden)])
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def keywords() -> Any:
    """Convolutions over time, tanh and a maximum."""
    spectrum = layers.Input((49, 10, 1))
    x = layers.Conv2D(16, (10, 4), 2, padding="same", activation="relu")(spectrum)
    x = layers.Activation("tanh")(layers.Conv1D(32, 3, padding="same")(layers.Reshape((25, 80))(x)))
    return keras.Model(spectrum, layers.Softmax()(layers.Dense(12)(layers.GlobalMaxPooling1D()(x))))


MODELS: dict[str, Callable[[], Any]] = {
    "detector": detector,
    "keywords": keywords,
    "segmentation": segmentation,
    "transformer": transformer,
}


def recurrent(folder: Path) -> bytes:
    """An LSTM over the rows of an image."""
    rows = tf_keras.Input((14, 16), batch_size=1)
    x = tf_keras.layers.Flatten()(tf_keras.layers.LSTM(12, return_sequences=True)(rows))
    model = tf_keras.Model(rows, tf_keras.layers.Dense(10, activation="softmax")(x))
    call = tf.function(model).get_concrete_function(tf.TensorSpec([1, 14, 16], tf.float32))
    model.save(folder, save_format="tf", signatures=call)
    return bytes(_calibrated(tf.lite.TFLiteConverter.from_saved_model(str(folder)), (1, 14, 16)).convert())


class _Stream(tf.Module):  # type: ignore[misc]
    """A convolution over time, one frame per call: the previous frames are kept in a variable."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.past = tf.Variable(tf.zeros((1, 3, 8)), trainable=False)
        self.weights = tf.Variable(rng.normal(0, 0.3, (4, 8, 6)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([1, 1, 8], tf.float32)])  # type: ignore[untyped-decorator]
    def __call__(self, frame: Any) -> Any:
        frames = tf.concat([self.past, frame], 1)
        self.past.assign(frames[:, 1:])
        return tf.nn.relu(tf.nn.conv1d(frames, self.weights, 1, "VALID"))


def streaming(folder: Path) -> bytes:
    tf.saved_model.save(_Stream(), str(folder))
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    converter.experimental_enable_resource_variables = True
    converter._experimental_variable_quantization = True
    return bytes(_calibrated(converter, (1, 1, 8)).convert())


def int8(model: Any) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    return bytes(_calibrated(converter, (1, *model.input_shape[1:])).convert())


def _calibrated(converter: Any, shape: tuple[int, ...]) -> Any:
    """Configures `converter` to quantize to int8, and returns it."""
    rng = np.random.default_rng(0)

    def samples() -> Iterator[list[Any]]:
        yield from ([rng.normal(0, 1, shape).astype(np.float32)] for _ in range(8))

    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter


def hybrid(model: Any) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return bytes(converter.convert())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        keras.utils.set_random_seed(1)
        (folder / f"{name}.tflite").write_bytes(int8(make()))
    keras.utils.set_random_seed(1)
    (folder / "keywords_hybrid.tflite").write_bytes(hybrid(keywords()))
    for name, save in (("recurrent", recurrent), ("streaming", streaming)):
        keras.utils.set_random_seed(1)
        with TemporaryDirectory() as saved:
            (folder / f"{name}.tflite").write_bytes(save(Path(saved)))


if __name__ == "__main__":
    main()
