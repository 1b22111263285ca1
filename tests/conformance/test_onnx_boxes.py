"""NonMaxSuppression and the operators after it, compared with ONNX Runtime. The number of boxes depends on the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import Unsupported
from service.core.models.arrays import Array
from service.core.verification.free_rows import fill_rows
from tests.support import evidence
from tests.support.conformance import assert_compiled_equals
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference


def _boxes(rng: np.random.Generator, batches: int, count: int, *, coarse: bool) -> Array:
    if coarse:  # many boxes touch, are equal or are empty
        return (rng.integers(0, 6, (batches, count, 4)) / 4).astype(np.float32)
    return rng.uniform(0, 1, (batches, count, 4)).astype(np.float32)


def _suppression(model: OnnxBuilder, inputs: list[Array], most: int, limits: tuple[float, ...], **options: Any) -> str:
    names = [model.input(f"x{index}", "float32", list(each.shape)) for index, each in enumerate(inputs)]
    parameters = [model.constant([most], "int64"), *(model.constant([limit], "float32") for limit in limits)]
    return model.node("NonMaxSuppression", [*names[:2], *parameters], ["boxes"], **options)


def _assert_equal(data: bytes, inputs: list[Array], *, compiled: bool) -> ImportedModel:
    imported = import_model(data)
    actual = oracle.run(imported.module, get_mode(ONNXRUNTIME), inputs)
    expected = fill_rows(Reference(data, optimized=False)(inputs), imported.signature)
    evidence.compare(imported, ONNXRUNTIME, [actual], [expected])
    if compiled:
        assert_compiled_equals(imported.module, ONNXRUNTIME, [inputs], [], [actual])
    return imported


@pytest.mark.parametrize("seed", range(24))
def test_selected_boxes_are_those_of_onnx_runtime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches, classes, count = (int(rng.integers(1, high)) for high in (3, 4, 40))
    boxes = _boxes(rng, batches, count, coarse=seed % 4 == 3)
    scores = rng.uniform(0, 1, (batches, classes, count))
    scores = (scores if seed % 2 else np.round(scores * 3) / 3).astype(np.float32)  # with equal scores in half
    limits = (float(rng.uniform(0, 1)) if seed % 5 else 0.0, *([float(rng.uniform(0, 0.8))] if seed % 3 else []))
    model = OnnxBuilder()
    inputs = [boxes, scores]
    name = _suppression(model, inputs, int(rng.integers(1, count + 3)), limits, center_point_box=seed // 2 % 2)
    model.output(name, "int64")
    imported = _assert_equal(model.build(), inputs, compiled=seed < 4)
    assert [spec.name for spec in imported.signature.outputs] == ["boxes", "boxes.count"]
    assert imported.signature.outputs[1].shape == (1,)


def _detector(model: OnnxBuilder, inputs: list[Array]) -> str:
    """Adds a NonMaxSuppression and the operators that exported detectors have after it: the coordinates, class and
    score of each selected box. Returns the number of the box, `[rows, 1]`.
    """
    rows = _suppression(model, inputs, 5, (0.5, 0.2))
    class_ = model.node("Gather", [rows, model.constant([1], "int64")], axis=1)
    box = model.node("Slice", [rows, *(model.constant([each], "int64") for each in (2, 3, 1))])
    flat = model.node("Squeeze", [box, model.constant([1], "int64")])
    corners = model.node("Gather", ["x0", flat], axis=1)  # [1, rows, 4]
    scaled = model.node("Mul", [corners, model.constant([640.0], "float32")])
    best = model.node("GatherND", ["x1", rows])  # [rows]
    column = model.node("Unsqueeze", [best, model.constant([1], "int64")])
    kinds = model.node("Cast", [class_], to=1)
    model.output(model.node("Concat", [kinds, column], ["labels"], axis=1), "float32")
    model.output(model.node("Identity", [scaled], ["corners"]), "float32")
    return box


def _detections() -> list[Array]:
    rng = np.random.default_rng(7)
    return [_boxes(rng, 1, 30, coarse=False), rng.uniform(0, 1, (1, 3, 30)).astype(np.float32)]


def test_operators_on_each_row_keep_the_number_of_boxes() -> None:
    model, inputs = OnnxBuilder(), _detections()
    _detector(model, inputs)
    imported = _assert_equal(model.build(), inputs, compiled=True)
    shapes = {spec.name: spec.shape for spec in imported.signature.outputs}
    assert shapes == {"labels": (15, 2), "corners": (1, 15, 4), "labels.count": (1,), "corners.count": (1,)}
    assert any("labels.count contains their number" in notice for notice in imported.notices)


@pytest.mark.parametrize(
    ("op_type", "attributes"), [("ReduceMax", {"axes": [0]}), ("Softmax", {"axis": 0}), ("Concat", {"axis": 0})]
)
def test_operators_that_combine_rows_are_refused(op_type: str, attributes: dict[str, Any]) -> None:
    model, inputs = OnnxBuilder(), _detections()
    box = model.node("Cast", [_detector(model, inputs)], to=1)
    model.output(model.node(op_type, [box, box] if op_type == "Concat" else [box], **attributes), "float32")
    with pytest.raises(Unsupported, match=f"{op_type} #.* combines rows whose number depends on the data"):
        import_model(model.build(13))


def test_no_box_is_selected_without_a_number_of_boxes() -> None:
    model = OnnxBuilder()
    boxes, scores = model.input("boxes", "float32", [1, 9, 4]), model.input("scores", "float32", [1, 2, 9])
    model.output(model.node("NonMaxSuppression", [boxes, scores], ["kept"]), "int64")
    with pytest.raises(Unsupported, match="selects no boxes, because max_output_boxes_per_class is 0"):
        import_model(model.build())


def test_a_score_that_is_not_a_number_is_not_selected() -> None:
    model, inputs = OnnxBuilder(), _detections()
    inputs[1][0, :, ::2] = np.nan
    inputs[0][0, ::3, 1] = np.nan
    model.output(_suppression(model, inputs, 30, (0.5,)), "int64")
    module = import_model(model.build()).module
    actual = oracle.run(module, get_mode(ONNXRUNTIME), inputs)
    assert actual[1] <= 45
    assert_compiled_equals(module, ONNXRUNTIME, [inputs], [], [actual])
