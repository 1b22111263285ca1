"""On this machine, LiteRT computes the results in examples/expected.json from the committed samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = json.loads((EXAMPLES / "expected.json").read_text())
RESOLVERS = {"reference": OpResolverType.BUILTIN_REF, "xnnpack": OpResolverType.AUTO}
MODELS = ("digits_int8.tflite", "digits_16x8.tflite", "digits_uint8.tflite")


def stored(pixels: np.ndarray, source: dict[str, Any]) -> np.ndarray:
    """Converts pixels to the element type of the model's input."""
    if source["dtype"] == np.int16:
        scale, _ = source["quantization"]
        return np.asarray(np.rint((pixels.astype(np.float32) - 128) / 128 / scale).astype(np.int16))
    return (pixels.astype(np.int16) + np.iinfo(source["dtype"]).min).astype(source["dtype"])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kernels", RESOLVERS)
def test_litert_answers_as_expected_and_reads_every_digit(name: str, kernels: str) -> None:
    interpreter = Interpreter(str(EXAMPLES / name), experimental_op_resolver_type=RESOLVERS[kernels])
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    for digit, picture in enumerate(EXPECTED["pictures"]):
        pixels = np.asarray(Image.open(EXAMPLES / picture)).reshape(source["shape"])
        interpreter.set_tensor(source["index"], stored(pixels, source))
        interpreter.invoke()
        (outputs,) = interpreter.get_tensor(result["index"]).tolist()
        assert outputs == EXPECTED[name][kernels][digit]
        assert np.argmax(outputs) == digit


def test_the_uint8_sample_has_asymmetric_weights() -> None:
    interpreter = Interpreter(
        str(EXAMPLES / "digits_uint8.tflite"), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    weights = [
        detail["quantization_parameters"]["zero_points"].tolist()
        for detail in interpreter.get_tensor_details()
        if "FakeQuant" in detail["name"]
    ]
    assert weights == [[111], [139], [130], [153], [170], [142], [128]]


def test_the_16x8_sample_has_activations_of_16_bits_and_biases_of_64() -> None:
    interpreter = Interpreter(
        str(EXAMPLES / "digits_16x8.tflite"), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    dtypes = [detail["dtype"] for detail in interpreter.get_tensor_details()]
    assert (dtypes.count(np.int64), dtypes.count(np.int8), dtypes.count(np.uint8)) == (7, 7, 0)
    assert dtypes.count(np.int16) == 11


def test_the_int8_sample_has_a_scale_for_each_channel() -> None:
    interpreter = Interpreter(
        str(EXAMPLES / "digits_int8.tflite"), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    constants = [
        detail["quantization_parameters"]
        for detail in interpreter.get_tensor_details()
        if detail["dtype"] == np.int8 and len(detail["quantization_parameters"]["scales"]) > 1
    ]
    assert len(constants) == 7
    assert all(len(set(quantization["scales"].tolist())) > 1 for quantization in constants)
    assert all(not quantization["zero_points"].any() for quantization in constants)
