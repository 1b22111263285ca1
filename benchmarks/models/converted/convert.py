"""Converts each layer in each form. Layers that a converter refuses are named and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found,import-untyped,unused-ignore]

from benchmarks.models.converted.layers import LAYERS, Layer

FORMS = ("float", "float16", "dynamic", "int8", "16x8", "16x8_bias32")
_SAMPLES = 8
_INT16 = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8


def convert_all(folder: Path, only: str) -> None:
    """Writes `LAYER.FORM.tflite` for every layer and form into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, layer in LAYERS.items():
        model = _model(layer)
        for form in FORMS:
            if only in ("", form):
                _write(folder / f"{name}.{form}.tflite", partial(_converted, model, layer, form))
        for recipe in _recipes():
            if only in ("", recipe):
                _write(folder / f"{name}.{recipe}.tflite", partial(_quantized, model, layer, recipe))


def _write(path: Path, make: Callable[[], bytes]) -> None:
    try:
        path.write_bytes(make())
    except Exception as error:
        print(f"{path.name}: {str(error).strip().splitlines()[0][:120]}", flush=True)


def _model(layer: Layer) -> Any:
    shape, apply = layer
    x = tf.keras.Input(shape, batch_size=1)
    is_layer = isinstance(apply, tf.keras.layers.Layer)
    return tf.keras.Model(x, apply(x) if is_layer else tf.keras.layers.Lambda(apply)(x))


def _samples(layer: Layer) -> Iterator[list[Any]]:
    rng = np.random.default_rng(0)
    for _ in range(_SAMPLES):
        yield [rng.normal(size=(1, *layer[0])).astype(np.float32)]


def _converted(model: Any, layer: Layer, form: str) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if form != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if form in ("int8", "16x8", "16x8_bias32"):
        is_wide = form != "int8"
        converter.representative_dataset = lambda: _samples(layer)
        converter.target_spec.supported_ops = [_INT16 if is_wide else tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int16 if is_wide else tf.int8
    if form == "16x8_bias32":
        converter._experimental_full_integer_quantization_bias_type = tf.int32
    return bytes(converter.convert())


def _recipes() -> list[str]:
    try:
        from ai_edge_quantizer import recipe  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return []
    return [name for name in dir(recipe) if name.startswith(("dynamic_", "static_", "weight_only_"))]


def _quantized(model: Any, layer: Layer, name: str) -> bytes:
    from ai_edge_quantizer import quantizer, recipe  # type: ignore[import-not-found,unused-ignore]

    real = _converted(model, layer, "float")
    made = quantizer.Quantizer(bytearray(real), getattr(recipe, name)())
    if not name.startswith("static_"):
        return bytes(made.quantize().quantized_model)
    signatures = tf.lite.Interpreter(model_content=real).get_signature_list()
    ((key, signature),) = signatures.items()
    samples = [{signature["inputs"][0]: sample} for (sample,) in _samples(layer)]
    return bytes(made.quantize(made.calibrate({key: samples})).quantized_model)
