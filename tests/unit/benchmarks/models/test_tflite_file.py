import math
from pathlib import Path

import numpy as np
import pytest
import tflite
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from PIL import Image

from benchmarks.models.tflite_file import macs, with_batch, with_symmetric_weights
from service.core.models.arrays import Array
from tests.support.shared_data import require_shared_data

EXAMPLES = Path(__file__).parents[4] / "examples"
FIXTURES = Path(__file__).parents[3] / "fixtures" / "tflite"


def test_macs_of_the_known_models() -> None:
    folder = require_shared_data() / "models" / "tflite"
    known = {
        "resnet50.int8": 4_089_184_256,
        "mobilenet_v2_1.0_224_quant": 300_775_552,
        "kws_ref_model": 2_656_768,
    }
    assert {name: macs((folder / f"{name}.tflite").read_bytes()) for name in known} == known


def test_macs_of_products_and_of_an_lstm() -> None:
    lstm, dense = 14 * 4 * 12 * (16 + 12), 168 * 10  # 14 steps, four gates of 12 units
    assert macs((FIXTURES / "recurrent.tflite").read_bytes()) == lstm + dense


def test_a_batch_computes_the_results_of_its_single_images() -> None:
    data = (require_shared_data() / "models" / "tflite" / "mobilenet_v2.int8.tflite").read_bytes()
    batched = with_batch(data, 2)
    assert macs(batched) == 2 * macs(data)
    images = np.random.default_rng(0).integers(-128, 127, (2, 224, 224, 3), np.int8)
    alone = [run(data, images[index : index + 1]) for index in range(2)]
    assert run(batched, images).tolist() == np.concatenate(alone).tolist()


def test_a_model_with_a_constant_shape_keeps_its_batch() -> None:
    data = (require_shared_data() / "models" / "tflite" / "kws_ref_model.tflite").read_bytes()
    with pytest.raises(ValueError, match="reshape"):
        with_batch(data, 2)


def test_symmetric_weights_are_nearly_the_same_weights() -> None:
    data = (EXAMPLES / "digits_uint8.tflite").read_bytes()
    changed = with_symmetric_weights(data)
    assert zero_points(changed) == {128}
    assert zero_points(data) != {128}
    pixels = np.asarray(Image.open(EXAMPLES / "digits" / "7.png")).reshape(1, 16, 16, 1)
    assert run(changed, pixels).argmax() == run(data, pixels).argmax() == 7


def test_signed_weights_are_symmetric_already() -> None:
    with pytest.raises(ValueError, match="symmetric already"):
        with_symmetric_weights((EXAMPLES / "digits_int8.tflite").read_bytes())


def run(data: bytes, image: Array) -> Array:
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    output: Array = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return output


def zero_points(data: bytes) -> set[int]:
    """Returns the zero points of the weights: the uint8 constants of more than one axis and more than one element."""
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    weights = [
        it
        for it in tensors
        if model.Buffers(it.Buffer()).DataLength()
        and it.ShapeLength() > 1
        and math.prod(it.ShapeAsNumpy()) > 1
        and it.Type() == tflite.TensorType.UINT8
    ]
    return {it.Quantization().ZeroPoint(0) for it in weights}
