"""Creates one network of keras.applications with seeded random weights as a TFLite file, and LiteRT's results for two
samples.

Runs in the environment `tensorflow`; writes the same files as `make`:

    python -m benchmarks.models.zoo.make_keras keras:MobileNetV3Small tflite-dynamic --output mobilenetv3.tflite
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchmarks.models.make_keras import randomize
from benchmarks.models.zoo.maker import ANSWERED, CALIBRATED, parsed, save

SIDE = 96
TOOLS = ("tflite-dynamic", "tflite-int8")


def main() -> None:
    arguments = parsed(__doc__, TOOLS)
    keras.utils.set_random_seed(0)
    given = keras.layers.Input((SIDE, SIDE, 3), batch_size=1)
    model = getattr(keras.applications, arguments.network.partition(":")[2])(input_tensor=given, weights=None)
    samples = np.random.default_rng(1).uniform(0, 255, (CALIBRATED + ANSWERED, SIDE, SIDE, 3)).astype(np.float32)
    randomize(model)
    model.call(tf.constant(samples[:CALIBRATED]), training=True)  # the momentum is 0, so this sets the statistics
    data = _converted(model, arguments.tool, samples[:CALIBRATED])
    arguments.output.write_bytes(data)
    pairs = (_answer(data, sample[np.newaxis]) for sample in samples[-ANSWERED:])
    save(arguments.output, (([given], [made]) for given, made in pairs))


def _converted(model: Any, tool: str, samples: Any) -> bytes:
    def calibration() -> Iterator[list[Any]]:
        return ([sample[np.newaxis]] for sample in samples)

    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if tool == "tflite-int8":
            converter.representative_dataset = calibration
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        return bytes(converter.convert())


def _answer(data: bytes, sample: Any) -> tuple[Any, Any]:
    """Returns the model's inputs and outputs, computed by LiteRT's reference kernels."""
    kernels = tf.lite.experimental.OpResolverType.BUILTIN_REF
    loaded = tf.lite.Interpreter(model_content=data, experimental_op_resolver_type=kernels, num_threads=1)
    loaded.allocate_tensors()
    (given,), (made,) = loaded.get_input_details(), loaded.get_output_details()
    if given["dtype"] == np.int8:
        scale, point = given["quantization"]
        sample = np.clip(np.rint(sample / scale) + point, -128, 127).astype(np.int8)
    loaded.set_tensor(given["index"], sample)
    loaded.invoke()
    return sample, loaded.get_tensor(made["index"])


if __name__ == "__main__":
    main()
