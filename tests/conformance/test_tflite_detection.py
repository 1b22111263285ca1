"""TFLite_Detection_PostProcess: the oracle is compared with LiteRT, and compiled code with the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import MalformedModel, Unsupported
from tests.support import litert
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_builder import ModelBuilder, Quant, serialize

MOST = 30


def options(**changed: float) -> bytes:
    builder = flexbuffers.Builder()
    values = {
        "max_detections": MOST,
        "max_classes_per_detection": 1,
        "num_classes": 3,
        "nms_score_threshold": 0.4,
        "nms_iou_threshold": 0.5,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
    }
    with builder.Map():
        for key, value in {**values, **changed}.items():
            builder.Key(key)
            builder.Int(value) if isinstance(value, int) else builder.Float(value)
    return bytes(builder.Finish())


def detector(custom_options: bytes, count: int = 40, *, quantized: bool = False, shaped: bool = True) -> bytes:
    """Returns a model with boxes on a grid, some of which overlap. Unless `shaped` is true, the file does not contain
    the shapes of the outputs.
    """
    side = np.arange(count) / count
    anchors = np.stack([side, side[::-1], np.full(count, 0.3), np.full(count, 0.2)], 1).astype(np.float32)
    builder = ModelBuilder()
    dtype = np.uint8 if quantized else np.float32
    boxes = builder.tensor("boxes", (1, count, 4), dtype, Quant(0.05, 128) if quantized else None)
    scores = builder.tensor("scores", (1, count, 4), dtype, Quant(1 / 256, 0) if quantized else None)
    if quantized:
        stored = np.rint(anchors * 255).astype(np.uint8)
        constant = builder.constant("anchors", stored, Quant(1 / 255, 0))
    else:
        constant = builder.constant("anchors", anchors)
    shapes = {"boxes_": (1, MOST, 4), "classes": (1, MOST), "scores_": (1, MOST), "number": (1,)}
    outputs = [builder.tensor(name, shape if shaped else (), np.float32) for name, shape in shapes.items()]
    builder.operator("CUSTOM", [boxes, scores, constant], outputs)
    builder.build([boxes, scores], outputs)
    builder.model.operatorCodes[0].customCode = "TFLite_Detection_PostProcess"
    builder.graph.operators[0].customOptions = np.frombuffer(custom_options, np.uint8)
    return serialize(builder.model)


def test_shapes_that_the_file_leaves_out_are_those_of_litert() -> None:
    """AutoML writes its detectors in this form. LiteRT computes the shapes when it prepares the kernel."""
    data = detector(options(), shaped=False)
    loaded = litert.interpreter(data)
    expected = [tuple(detail["shape"]) for detail in loaded.get_output_details()]
    assert [spec.shape for spec in import_model(data).signature.outputs] == expected


@pytest.mark.parametrize(
    ("quantized", "shaped"), [(False, True), (True, True), pytest.param(False, False, marks=pytest.mark.slow)]
)
def test_detections_equal_litert_and_compiled_code(quantized: bool, shaped: bool) -> None:
    data = detector(options(), quantized=quantized, shaped=shaped)
    module, reference = import_model(data).module, litert.interpreter(data)
    rng = np.random.default_rng(2)
    numbers = set()
    for case in range(12):
        scores = (rng.random((1, 40, 4)) * (0.3 + 0.1 * case)).astype(np.float32)
        boxes = rng.normal(0, 0.7, (1, 40, 4)).astype(np.float32)
        if quantized:
            scores, boxes = (
                np.clip(scores * 256, 0, 255).astype(np.uint8),
                rng.integers(100, 156, boxes.shape, np.uint8),
            )
        expected, actual = (
            litert.run(reference, [boxes, scores]),
            oracle.run(module, get_mode(LITERT_REFERENCE), [boxes, scores]),
        )
        number = int(expected[3][0])
        numbers.add(number)
        assert actual[3][0] == number
        for ours, theirs in zip(actual[:3], expected[:3], strict=True):  # LiteRT does not write the other rows
            np.testing.assert_array_equal(ours[:, :number], theirs[:, :number])
        if case % 4 == 0:
            compiled = compile_and_run_all(canonicalize(module, get_mode(LITERT_REFERENCE)), [boxes, scores])
            for ours, theirs in zip(compiled, actual, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert len(numbers) > 2, "nearly all cases have the same number of detections"


@pytest.mark.parametrize(
    ("custom_options", "message"),
    [
        (options(use_regular_nms=1), "class by class"),
        (options(max_classes_per_detection=2), "several classes"),
        (options(num_classes=9), "4 scores for 9.0 classes"),
        (options(y_scale=0.0), "scales"),
        (b"", "cannot be read"),
        (b"\xff" * 40, "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(custom_options: bytes, message: str) -> None:
    with pytest.raises((Unsupported, MalformedModel), match=message):
        import_model(detector(custom_options))
