"""Creates the sample models: trains a small network on handwritten digits and quantizes it in three ways.

    python -m venv digits && digits/bin/pip install -r examples/requirements.txt
    digits/bin/python examples/train_digits.py

It writes into its own folder:

    digits_int8.tflite    int8, weights per channel and symmetric: post-training quantization as converters do it today
    digits_uint8.tflite   uint8, weights per tensor and asymmetric: as the hosted models of 2018 to 2020 have it
    digits_16x8.tflite    int16 activations, int8 weights per channel: the converter's 16x8 post-training quantization
    digits/0.png … 9.png  one digit of the test split for each class, 16 x 16 gray
    expected.json         LiteRT's outputs for those ten, with its reference kernels and with its default delegate
    labels.txt

and prints the accuracy of each model under each set of kernels. Nothing depends on the clock or on chance: the same
versions on the same processor write the same bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # its kernels sum in a different order
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Array = npt.NDArray[Any]
Weights = Mapping[str, Any]  # name -> tf.Variable, or a tensor in a graph
Tap = Callable[[str, Any], Any]  # (name, tensor) -> the tensor that takes its place

HERE = Path(__file__).resolve().parent
SIZE = 16  # width and height in pixels
CLASSES = 10
SEED = 0
EPOCHS = 60
BATCH = 32
LEARNING_RATE = 3e-3
SMOOTHING = 0.1  # label smoothing: outputs that are not saturated make differences visible in 8 bits

# [KH, KW, I, O] of a convolution, [KH, KW, C, M] of a depthwise one, [I, O] of the dense layer.
SHAPES: Mapping[str, tuple[int, ...]] = {
    "stem": (3, 3, 1, 16),
    "reduce": (3, 3, 16, 1),
    "project": (1, 1, 16, 24),
    "expand": (1, 1, 24, 48),
    "depthwise": (3, 3, 48, 1),
    "shrink": (1, 1, 48, 24),
    "classify": (24, CLASSES),
}


def network(image: Any, weights: Weights, tap: Tap) -> Any:
    """A small MobileNetV2: `image` is `[N, 16, 16, 1]` in [-1, 1), and the result are the logits `[N, 10]`.

    `tap` sees each weight and each activation that a quantized model stores. It is the identity while training,
    records ranges while calibrating, and inserts a fake quantization in the graph that the converter gets.
    """

    def weight(name: str) -> Any:
        return tap(f"{name}/weight", weights[f"{name}/weight"])

    def conv(x: Any, name: str) -> Any:
        return tf.nn.conv2d(x, weight(name), 1, "SAME") + weights[f"{name}/bias"]

    def depthwise(x: Any, name: str, stride: int) -> Any:
        y = tf.nn.depthwise_conv2d(x, weight(name), [1, stride, stride, 1], "SAME")
        return y + weights[f"{name}/bias"]

    x = tap("image", image)
    x = tap("stem", tf.nn.relu6(conv(x, "stem")))
    x = tap("reduce", tf.nn.relu6(depthwise(x, "reduce", 2)))
    trunk = tap("project", conv(x, "project"))
    x = tap("expand", tf.nn.relu6(conv(trunk, "expand")))
    x = tap("depthwise", tf.nn.relu6(depthwise(x, "depthwise", 1)))
    x = tap("sum", trunk + tap("shrink", conv(x, "shrink")))
    x = tf.nn.avg_pool2d(x, SIZE // 2, 1, "VALID")
    x = tf.reshape(x, [-1, SHAPES["classify"][0]])
    return tap("logits", tf.matmul(x, weight("classify")) + weights["classify/bias"])


def unchanged(name: str, tensor: Any) -> Any:
    return tensor


def digits() -> tuple[Array, Array, Array, Array]:
    """Returns (train pixels, train labels, test pixels, test labels); pixels are `[N, 16, 16, 1] uint8`.

    The data set has 8 x 8 pixels of 0 to 16: each becomes 2 x 2 pixels of 0 to 255.
    """
    data = load_digits()
    pixels = np.minimum(data.images.astype(np.int64) * 16, 255).astype(np.uint8)
    pixels = np.kron(pixels, np.ones((1, 2, 2), np.uint8))[..., np.newaxis]
    train, test = train_test_split(np.arange(len(pixels)), test_size=0.2, random_state=SEED, stratify=data.target)
    return pixels[train], data.target[train], pixels[test], data.target[test]


def normalized(pixels: Array) -> Array:
    """Scales pixels for the network by a power of two, so that none is rounded: `[0, 255]` → `[-1, 127/128]`."""
    return (pixels.astype(np.float32) - 128) / 128


def initial_weights() -> dict[str, tf.Variable]:
    weights = {}
    for place, (name, shape) in enumerate(SHAPES.items()):
        weights[f"{name}/weight"] = tf.Variable(keras.initializers.HeNormal(seed=SEED + place)(shape))
        outputs = shape[2] * shape[3] if name in ("reduce", "depthwise") else shape[-1]
        weights[f"{name}/bias"] = tf.Variable(tf.zeros([outputs]))
    return weights


def train(images: Array, labels: Array) -> dict[str, Array]:
    """Trains the network. Returns its weights, float32."""
    targets = np.eye(CLASSES, dtype=np.float32)[labels] * (1 - SMOOTHING) + SMOOTHING / CLASSES
    weights = initial_weights()
    variables = list(weights.values())
    steps = EPOCHS * (len(images) // BATCH)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps))
    optimizer.build(variables)

    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            logits = network(x, weights, unchanged)
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(y, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    rng = np.random.default_rng(SEED)
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))[: len(images) // BATCH * BATCH]
        for batch in order.reshape(-1, BATCH):
            step(tf.constant(images[batch]), tf.constant(targets[batch]))
    return {name: variable.numpy() for name, variable in weights.items()}


def post_training(weights: Mapping[str, Array], images: Array, operators: tf.lite.OpsSet, storage: tf.DType) -> bytes:
    """Quantizes with the converter's post-training quantization, inputs and outputs included."""

    class Digits(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([1, SIZE, SIZE, 1], tf.float32, name="image")])
        def __call__(self, image: Any) -> dict[str, Any]:
            return {"probabilities": tf.nn.softmax(network(image, weights, unchanged))}

    module = Digits()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.__call__.get_concrete_function()], module)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[np.newaxis]] for image in images)
    converter.target_spec.supported_ops = [operators]
    converter.inference_input_type = storage
    converter.inference_output_type = storage
    return bytes(converter.convert())


def uint8_per_tensor(weights: Mapping[str, Array], images: Array) -> bytes:
    """uint8 with one scale and one zero point for each tensor, weights too.

    The converter takes both from the fake quantizations of a TensorFlow 1 graph, as it did for the hosted models:
    `scale = (high - low) / 255`. The ranges are the smallest and largest value seen, and zero always lies inside
    (Jacob et al., 2018, section 3).
    """
    ranges: dict[str, tuple[float, float]] = {}

    def record(name: str, tensor: Any) -> Any:
        ranges[name] = (min(0.0, float(tf.reduce_min(tensor))), max(0.0, float(tf.reduce_max(tensor))))
        return tensor

    def quantize(name: str, tensor: Any) -> Any:
        return tf.quantization.fake_quant_with_min_max_args(tensor, *ranges[name])

    network(tf.constant(images), weights, record)
    ranges["image"] = (-1.0, 127 / 128)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        image = tf.compat.v1.placeholder(tf.float32, [1, SIZE, SIZE, 1], name="image")
        constants = {name: tf.constant(value, name=name) for name, value in weights.items()}
        probabilities = tf.nn.softmax(network(image, constants, quantize), name="probabilities")
        converter = tf.compat.v1.lite.TFLiteConverter.from_session(session, [image], [probabilities])
        converter.inference_type = tf.uint8
        converter.inference_input_type = tf.uint8
        converter.inference_output_type = tf.uint8
        converter.quantized_input_stats = {"image": (128.0, 128.0)}
        return bytes(converter.convert())


def answers(model: bytes, pixels: Array, resolver: OpResolverType) -> Array:
    """Runs a model on each picture. Returns its outputs `[N, 10]` in the model's type.

    An int8 model takes pixel - 128, an int16 model (pixel - 128) / 128 in its own scale.
    """
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    scale, _ = source["quantization"]
    inputs = pixels if source["dtype"] == np.uint8 else np.rint(normalized(pixels) / scale).astype(source["dtype"])
    outputs = []
    for image in inputs:
        interpreter.set_tensor(source["index"], image[np.newaxis])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"])[0].copy())
    return np.stack(outputs)


_OPERATORS_16X8 = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
KERNELS = {"reference": OpResolverType.BUILTIN_REF, "xnnpack": OpResolverType.AUTO}


def main() -> None:
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(SEED)

    train_pixels, train_labels, test_pixels, test_labels = digits()
    images = normalized(train_pixels)
    weights = train(images, train_labels)
    logits = network(tf.constant(normalized(test_pixels)), weights, unchanged).numpy()
    print(f"float32                          {np.mean(logits.argmax(1) == test_labels):.2%}")

    chosen = [int(np.flatnonzero(test_labels == label)[0]) for label in range(CLASSES)]
    (HERE / "digits").mkdir(exist_ok=True)
    for label, index in enumerate(chosen):
        Image.fromarray(test_pixels[index, :, :, 0]).save(HERE / "digits" / f"{label}.png", optimize=True)
    (HERE / "labels.txt").write_text("".join(f"{label}\n" for label in range(CLASSES)))

    expected: dict[str, Any] = {"litert": version("ai-edge-litert"), "pictures": [f"digits/{n}.png" for n in range(10)]}
    models = {
        "digits_int8.tflite": post_training(weights, images, tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.int8),
        "digits_16x8.tflite": post_training(weights, images, _OPERATORS_16X8, tf.int16),
        "digits_uint8.tflite": uint8_per_tensor(weights, images),
    }
    for name, model in models.items():
        (HERE / name).write_bytes(model)
        expected[name] = {}
        for kernels, resolver in KERNELS.items():
            outputs = answers(model, test_pixels, resolver)
            accuracy = np.mean(outputs.argmax(1) == test_labels)
            print(f"{name:20} {kernels:10}  {accuracy:.2%} of {len(test_labels)}, {len(model)} bytes")
            expected[name][kernels] = outputs[chosen].tolist()
    (HERE / "expected.json").write_text(_json(expected))


def _json(expected: Mapping[str, Any]) -> str:
    """Formats the JSON with the ten outputs for a picture on one line."""
    text = json.dumps(expected, indent=1)
    return (
        re.sub(r"\[[-\d,\s]+\]", lambda row: " ".join(row[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
        + "\n"
    )


if __name__ == "__main__":
    main()
