"""`octet quantize` of float models in formats other than ONNX. The result is an ONNX file that is as accurate as one
from an ONNX model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from typer.testing import CliRunner

from service.cli.app import app
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.float_networks import pictures, residual_network
from tests.support.tflite_catalog import MODELS
from tests.support.tflite_float_network import tflite_residual_network
from tests.support.tflite_metadata import IMAGE, Described, labels_in, metadata_buffer, with_metadata

TORCH = Path(__file__).parents[1] / "fixtures" / "float"
ROUNDING = 1e-6  # rounding errors of float32 in Softmax, and in a mean over few numbers


def run_quantize(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["quantize", *map(str, arguments), "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def same_answers(file: Path, images: np.ndarray[Any, Any]) -> None:
    """Asserts that ONNX Runtime and Octet compute the same results."""
    data = file.read_bytes()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    module = import_model(data).module
    for image in images:
        theirs = session.run(None, {session.get_inputs()[0].name: image[None]})
        ours = oracle.run(module, get_mode(ONNXRUNTIME), [image[None]])
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, ROUNDING, ROUNDING)


@pytest.mark.slow
def test_a_tflite_model_loses_as_much_as_the_same_onnx_model(tmp_path: Path) -> None:
    images = pictures(24)
    (tmp_path / "a.onnx").write_bytes(residual_network())
    (tmp_path / "b.tflite").write_bytes(tflite_residual_network())
    last = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    np.savez(tmp_path / "a.npz", image=images)
    np.savez(tmp_path / "b.npz", image=last)
    reports = {}
    for file, data in (("a.onnx", "a.npz"), ("b.tflite", "b.npz")):
        status, reports[file] = run_quantize(tmp_path / file, "--data", tmp_path / data)
        assert status == 0, reports[file]
    one, other = reports["a.onnx"], reports["b.tflite"]
    assert other["output"] == str(tmp_path / "b.int8.onnx")
    assert (
        other["float"]
        == one["float"]
        == [{"op_type": "Softmax", "reason": "quantizing this operator is not supported", "operators": 1}]
    )
    assert other["bytes"]["source"] == (tmp_path / "b.tflite").stat().st_size
    assert one["bytes"]["source"] == one["bytes"]["float"] == (tmp_path / "a.onnx").stat().st_size
    assert other["bytes"]["float"] == pytest.approx(one["bytes"]["float"], rel=0.15), (
        "the size of both models as ONNX in float32"
    )
    # The two results are not exactly equal, because Pad, and a MaxPool that only moves bytes, may be at different
    # positions.
    assert other["outputs_db"]["scores"] == pytest.approx(one["outputs_db"]["scores"], abs=0.1)
    same_answers(tmp_path / "b.int8.onnx", last[:4])


@pytest.mark.slow  # tests/unit/quantize/export/test_model.py converts both files
@pytest.mark.parametrize("name", ["network.pt", "network.pt2"])
def test_a_pytorch_model_is_quantized(tmp_path: Path, name: str) -> None:
    with np.load(TORCH / "network.npz") as arrays:
        shape = arrays["x"].shape
    images = np.random.default_rng(0).normal(0, 1, (16, *shape[1:])).astype(np.float32)
    np.save(tmp_path / "x.npy", images)
    status, report = run_quantize(TORCH / name, "--data", tmp_path / "x.npy", "-o", tmp_path / "q.onnx")
    assert status == 0, report
    assert {each["op_type"] for each in report["float"]} == {"LayerNormalization", "ReduceMean", "Softmax"}
    assert min(report["outputs_db"].values()) > 20
    same_answers(tmp_path / "q.onnx", images[:4])


@pytest.mark.slow  # tests/unit/quantize/export/test_model.py reads them
def test_labels_and_preprocessing_come_from_the_file(tmp_path: Path) -> None:
    """Calibration preprocesses pictures in the same way as the served model."""
    labels = [f"number {digit}" for digit in range(10)]
    described = metadata_buffer([Described(IMAGE, mean=[100.0], std=[50.0])], [labels_in()])
    plain = tflite_residual_network()
    (tmp_path / "said.tflite").write_bytes(with_metadata(plain, described, {"labels.txt": "\n".join(labels)}))
    (tmp_path / "plain.tflite").write_bytes(plain)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, picture in enumerate(np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)):
        Image.fromarray(picture).save(folder / f"{number}.png")
    asked_for = ["--mean", 100 / 255, "--std", 50 / 255, "--layout", "nhwc"]
    status, report = run_quantize(tmp_path / "said.tflite", "--data", folder)
    assert status == 0, report
    _, plainly = run_quantize(tmp_path / "plain.tflite", "--data", folder, *asked_for)
    assert report["tensors_db"] == plainly["tensors_db"]
    found = import_model((tmp_path / "said.int8.onnx").read_bytes()).metadata
    assert (found.labels, found.std) == (tuple(labels), (50 / 255,))


def test_only_weights_are_quantized(tmp_path: Path) -> None:
    (tmp_path / "b.tflite").write_bytes(tflite_residual_network())
    status, report = run_quantize(tmp_path / "b.tflite", "--weights", 8)
    assert status == 0, report
    assert len(report["layers"]) == 1


def test_a_quantized_tflite_model_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "q.tflite").write_bytes(next(iter(MODELS.values()))())
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    status, report = run_quantize(tmp_path / "q.tflite", "--data", tmp_path / "x.npy")
    assert status == 1
    assert report["error"]["message"] == "this model is quantized already"
    assert "octet push" in report["error"]["hint"]
