"""`octet quantize` converts a float file and inputs to a quantized file, which can be compiled."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.build import Stage
from service.core.builds.numerics import ONNXRUNTIME
from service.core.settings import load_settings
from service.quantize.calibration.data import Data
from service.quantize.calibration.observing import CalibrationSession, Children
from service.quantize.file.document import Document
from service.quantize.quantization import Calibration, Options
from service.quantize.rewrites.folding import tidy
from tests.support.float_networks import INPUT, dense_network, pictures, residual_network
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

# these options cause a wrong prediction of the network below
COARSE = ("--method", "power-of-two", "--no-correct-bias")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    path.write_bytes(residual_network())
    return path


def answers(data: bytes, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    module = import_model(data).module
    return np.stack([oracle.run(module, get_mode(ONNXRUNTIME), [image[None]])[0] for image in images])


class Silent:
    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        pass


def run_quantize(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["quantize", *map(str, arguments), "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_a_network_is_quantized_and_measured(model: Path, tmp_path: Path) -> None:
    images = pictures(40)  # two chunks
    np.savez(tmp_path / "x.npz", image=images)
    right = answers(residual_network(), images).reshape(40, -1).argmax(axis=1)
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(map(str, right)))
    status, report = run_quantize(model, "--data", tmp_path / "x.npz", "--labels", labels, "--method", "mse")
    assert status == 0, report
    assert report["output"] == str(tmp_path / "network.int8.onnx")
    assert report["inputs"] == 40
    assert report["accuracy"]["float"]["share"] == 1
    assert report["accuracy"]["quantized"] == report["same_class"]
    assert report["float"] == [
        {"op_type": "Softmax", "reason": "quantizing this operator is not supported", "operators": 1}
    ]
    assert min(report["tensors_db"].values()) > 20
    # The outputs that the command measured are those of the written file.
    quantized = answers((tmp_path / "network.int8.onnx").read_bytes(), images)
    same = (quantized.reshape(40, -1).argmax(axis=1) == right).sum()
    assert report["same_class"]["right"] == same
    real = answers(residual_network(), images).astype(np.float64)
    decibels = 10 * np.log10((real**2).sum() / ((real - quantized) ** 2).sum())
    assert report["outputs_db"]["scores"] == pytest.approx(
        decibels, abs=0.05
    )  # Octet's float kernels round differently


@pytest.mark.slow
def test_one_constant_image_is_enough_for_a_file(model: Path, tmp_path: Path) -> None:
    """The ranges come from one grey image. Tensors that are zero for it get the scale 1."""
    np.savez(tmp_path / "x.npz", image=np.zeros(INPUT, np.float32))
    status, report = run_quantize(model, "--data", tmp_path / "x.npz", "--method", "kl", "-o", tmp_path / "q.onnx")
    assert status == 0, report
    assert report["inputs"] == 1
    assert np.isfinite(answers((tmp_path / "q.onnx").read_bytes(), pictures(1))).all()


@pytest.mark.slow  # test_quantize_formats.py does the same with a TFLite file
def test_a_quantized_model_is_rejected(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros(INPUT, np.float32))
    assert run_quantize(model, "--data", tmp_path / "x.npz", "-o", tmp_path / "q.onnx")[0] == 0
    status, report = run_quantize(tmp_path / "q.onnx", "--data", tmp_path / "x.npz")
    assert status == 1
    assert report["error"]["message"] == "this model is quantized already"


def test_a_set_that_does_not_fit_is_rejected(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros((1, 3, 8, 8), np.float32))
    status, report = run_quantize(model, "--data", tmp_path / "x.npz")
    assert status == 1
    assert "the model takes [1, 3, 16, 16]" in report["error"]["message"]


def test_layers_are_left_in_float_until_a_budget_is_met(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(24))
    arguments = (model, "--data", tmp_path / "x.npz", *COARSE, "-o", tmp_path / "q.onnx")
    _, plain = run_quantize(*arguments, "--sensitivity")
    costs = plain["sensitivity"]
    assert list(costs["layers_db"].values()) == sorted(costs["layers_db"].values())
    assert len(costs["layers_db"]) == plain["quantized"] - 2, "all but MaxPool and Flatten"
    first, *_, last = costs["curve"]
    # With all switches on, the model computes the results of the quantized model. With all switches off, it computes
    # those of the float model.
    assert first["output_db"] == pytest.approx(plain["outputs_db"]["scores"], abs=1e-3)
    assert first["share"] == plain["same_class"]["share"] < 1
    assert (last["share"], last["output_db"]) == (1, None)
    status, report = run_quantize(*arguments, "--budget", "0%", "--curve", tmp_path / "curve.json")
    assert status == 0, report
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert curve == report["sensitivity"]["curve"]
    assert report["same_class"]["share"] == 1
    # The smallest mixture that was tried.
    enough = [point for point in curve if point["share"] == 1]
    raised = min(len(point["kept"]) + len(point["wide"]) for point in enough)
    chosen = min(
        (point for point in enough if len(point["kept"]) + len(point["wide"]) == raised),
        key=lambda point: len(point["kept"]),
    )
    assert report["outputs_db"]["scores"] == pytest.approx(chosen["output_db"], abs=1e-3)
    assert 0 < raised < len(costs["layers_db"])
    reasons = [each["operators"] for each in report["float"] if each["reason"] == "it was kept in float"]
    assert sum(reasons) == raised


@pytest.mark.slow
def test_a_16_bit_layer_costs_what_the_search_measured(model: Path, tmp_path: Path) -> None:
    """All layers are in 16x8: once by the switches, and once in the written file."""
    np.savez(tmp_path / "x.npz", image=pictures(8))
    _, report = run_quantize(model, "--data", tmp_path / "x.npz", "--sensitivity", "-o", tmp_path / "q.onnx")
    all_wide = [point for point in report["sensitivity"]["curve"] if len(point["wide"]) == 7]
    with tempfile.TemporaryDirectory() as scratch:
        session = CalibrationSession(Path(scratch), Children(load_settings({"build_nice": 0}), Silent(), {}))
        options = Options(wide=all_wide[0]["wide"])
        calibration = Calibration(residual_network(), session, Data(tmp_path / "x.npz"), Options())
        quantized = calibration.quantize(options)
        measured = calibration.measure(quantized).to_json()
    assert measured["outputs_db"]["scores"] == pytest.approx(all_wide[0]["output_db"], abs=1e-3)
    assert measured["outputs_db"]["scores"] > report["outputs_db"]["scores"] + 3
    int8 = {constant.dtype for constant in Document(quantized.file).constants.values() if constant.ndim > 1}
    assert int8 == {np.dtype(np.int8)}, "all weights have 8 bits"


@pytest.mark.parametrize(
    ("name", "magic"), [("curve.svg", b"<svg"), pytest.param("curve.png", b"\x89PNG", marks=pytest.mark.slow)]
)
def test_the_curve_is_drawn(model: Path, tmp_path: Path, name: str, magic: bytes) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(2))
    status, report = run_quantize(model, "--data", tmp_path / "x.npz", "--curve", tmp_path / name)
    assert status == 0, report
    drawn = (tmp_path / name).read_bytes()
    assert drawn.startswith(magic)
    if name.endswith("svg"):
        curve = report["sensitivity"]["curve"]
        assert {bool(point["wide"]) for point in curve} == {True, False}
        assert drawn.count(b"<circle") == len(curve) + 3, (
            "the mixture in int8 is on both lines, and two are in the legend"
        )


def test_a_curve_in_an_unknown_format_is_rejected(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(1))
    status, report = run_quantize(model, "--data", tmp_path / "x.npz", "--curve", tmp_path / "curve.pdf")
    assert status == 1
    assert "does not end in one of .json, .svg, .png" in report["error"]["message"]


def test_a_budget_must_be_a_fraction(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(1))
    for text in ("much", "-1%", "100%"):
        status, report = run_quantize(model, "--data", tmp_path / "x.npz", f"--budget={text}")
        assert status == 1
        assert "is not a share" in report["error"]["message"]


@pytest.mark.slow
def test_some_of_the_raised_layers_use_bfloat16(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(24))
    arguments = (model, "--data", tmp_path / "x.npz", *COARSE, "-o", tmp_path / "q.onnx")
    status, report = run_quantize(
        *arguments, "--budget", "0%", "--raise-to", "bfloat16", "--curve", tmp_path / "curve.svg"
    )
    assert status == 0, report
    assert report["same_class"]["share"] == 1
    assert report["wide"] == []
    assert report["bfloat16"]
    chosen = next(each for each in report["sensitivity"]["curve"] if each["bfloat16"] == report["bfloat16"])
    assert chosen["kept"] == report["kept"]
    assert report["outputs_db"]["scores"] == pytest.approx(chosen["output_db"], abs=1e-3), "the search measured it too"
    casts = [node for node in Document((tmp_path / "q.onnx").read_bytes()).nodes if node.op_type == "Cast"]
    assert len(casts) >= 3 * len(report["bfloat16"]), "two casts of the input and one of the weights of each"
    assert "in bfloat16" in (tmp_path / "curve.svg").read_text()


@pytest.mark.parametrize("others", [(), ("--budget", "0%", "--latency-budget", "5ms")])
def test_bfloat16_requires_a_budget_of_answers(model: Path, tmp_path: Path, others: tuple[str, ...]) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(4))
    status, report = run_quantize(model, "--data", tmp_path / "x.npz", "--raise-to", "bfloat16", *others)
    assert status == 1
    assert "raise_to bfloat16 needs a budget" in report["error"]["message"]


@pytest.mark.slow
def test_a_latency_bound_takes_precedence_over_a_budget(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(24))
    arguments = (model, "--data", tmp_path / "x.npz", *COARSE, "-o", tmp_path / "q.onnx")
    status, report = run_quantize(*arguments, "--budget", "0%", "--latency-budget", "1us")
    assert status == 0, report
    costs = report["sensitivity"]
    assert costs["latency_budget"] == {"asked": "1us", "limit_ms": 0.001, "met": False, "budget_met": False}
    assert (report["kept"], report["wide"]) == ([], [])
    assert min(point["latency_ms"] for point in costs["curve"]) > 0.001


@pytest.mark.slow
def test_as_many_layers_stay_in_float_as_a_latency_bound_allows(model: Path, tmp_path: Path) -> None:
    """This bound allows all layers in float."""
    np.savez(tmp_path / "x.npz", image=pictures(4))
    arguments = (model, "--data", tmp_path / "x.npz", "-o", tmp_path / "q.onnx")
    status, report = run_quantize(*arguments, "--latency-budget", "10000x", "--curve", tmp_path / "curve.svg")
    assert status == 0, report
    assert report["sensitivity"]["latency_budget"]["met"]
    assert len(report["kept"]) == len(report["sensitivity"]["layers_db"])
    assert (report["quantized"], report["outputs_db"]["scores"]) == (0, None)
    assert "latency (ms)" in (tmp_path / "curve.svg").read_text()


@pytest.mark.parametrize(
    "flavour",
    [["--dynamic"], pytest.param(["--weights", "8"], marks=pytest.mark.slow), ["--weights", "4", "--block", "16"]],
)
def test_only_products_are_quantized_without_inputs(tmp_path: Path, flavour: list[str]) -> None:
    (tmp_path / "dense.onnx").write_bytes(dense_network())
    status, report = run_quantize(tmp_path / "dense.onnx", *flavour)
    assert status == 0, report
    assert len(report["layers"]) == 3
    assert report["output"] == str(tmp_path / f"dense.int{4 if '4' in flavour else 8}.onnx"), (
        "the name contains the number of bits of the weights"
    )
    file = Path(report["output"]).read_bytes()
    size = len(dense_network())
    assert report["bytes"] == {"source": size, "float": size, "quantized": len(file)}
    x = np.random.default_rng(0).normal(0, 1, (1, 6, 40)).astype(np.float32)  # `answers` adds the batch dimension
    real, ours = answers(dense_network(), x), answers(file, x)
    assert ((real - ours) ** 2).sum() < 0.03 * (real**2).sum()


def test_contradictory_options_are_rejected(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(1))
    for arguments in ([], ["--dynamic", "--weights", "8"], ["--dynamic", "--data", tmp_path / "x.npz"]):
        status, report = run_quantize(model, *arguments)
        assert status == 1
        assert report["error"]["code"] == "invalid_input"


@pytest.mark.slow
def test_a_bfloat16_layer_computes_the_same_as_onnx_runtime(model: Path, tmp_path: Path) -> None:
    """The command quantizes the model, which is then compiled for this machine. Integer results are equal, and real
    sums are equal within rounding.
    """
    document = Document(residual_network())
    tidy(document)
    layer = [node for node in document.nodes if node.op_type == "Conv" and node.attributes.get("group", 1) == 1][1]
    name, images = layer.outputs[0], pictures(8)
    np.savez(tmp_path / "x.npz", image=images)
    status, report = run_quantize(model, "--data", tmp_path / "x.npz", "--bfloat16", name, "-o", tmp_path / "q.onnx")
    assert status == 0, report
    assert report["bfloat16"] == [name]
    file = (tmp_path / "q.onnx").read_bytes()
    stored = [tensor for tensor in read_model(file).constants.values() if tensor.dtype == "bfloat16"]
    assert [tensor.shape for tensor in stored] == [document.constants[layer.inputs[1]].shape]
    products = [
        operation
        for _, _, operation in graph.operations(graph.main_of(import_model(file).module))
        if operation is not None and operation.name == "qnn.real_conv2d"
    ]
    assert [str(product.attr("operand_dtype")) for product in products] == ["bfloat16"]
    expected = np.stack([Reference(file, optimized=True)([image[None]])[0] for image in images])
    np.testing.assert_allclose(answers(file, images), expected, rtol=0, atol=1e-2)
    assert report["outputs_db"]["scores"] > 20


def test_bfloat16_for_a_layer_without_products_is_rejected(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=pictures(4))
    softmax = next(node for node in Document(residual_network()).nodes if node.op_type == "Softmax")
    status, report = run_quantize(model, "--data", tmp_path / "x.npz", "--bfloat16", softmax.outputs[0])
    assert status != 0
    assert "produced by Softmax, which cannot run in bfloat16" in json.dumps(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bfloat16", "no-such-layer"), "no operator produces no-such-layer"),
        pytest.param(("--wide", "no-such-layer"), "no operator produces no-such-layer", marks=pytest.mark.slow),
        pytest.param(("--keep", "no-such-layer"), "no operator produces no-such-layer", marks=pytest.mark.slow),
        (("--labels", "labels.csv"), "labels.csv has 2 labels, but x.npz has 4 inputs"),
    ],
)
def test_options_are_checked_before_anything_is_run(
    options: tuple[str, str], message: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model is built: the stage before a build is the last one in the error."""
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", image=pictures(4))
    Path("labels.csv").write_text("1\n2\n")
    built: list[object] = []
    monkeypatch.setattr("service.quantize.sandboxed.build", lambda *given: built.append(given))
    status, report = run_quantize(model, "--data", "x.npz", *options)
    assert status == 1
    assert message in report["error"]["message"]
    assert built == []


def test_an_old_operator_set_is_refused_before_anything_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = OnnxBuilder()
    ones = graph.constant(np.ones((3, 3, 1, 1)), "float32")
    graph.output(graph.node("Conv", [graph.input("image", "float32", [1, 3, 8, 8]), ones]), "float32")
    (tmp_path / "old.onnx").write_bytes(graph.build(opset=11))
    np.savez(tmp_path / "x.npz", image=np.ones((2, 3, 8, 8), np.float32))
    built: list[object] = []
    monkeypatch.setattr("service.quantize.sandboxed.build", lambda *given: built.append(given))
    status, report = run_quantize(tmp_path / "old.onnx", "--data", tmp_path / "x.npz")
    assert (status, report["error"]["code"]) == (1, "unsupported")
    assert "operator set 11" in report["error"]["message"]
    assert built == []


def test_the_loss_is_measured_on_held_out_inputs(model: Path, tmp_path: Path) -> None:
    images = pictures(40)
    np.savez(tmp_path / "x.npz", image=images[:8])
    np.savez(tmp_path / "held.npz", image=images[8:])
    right = answers(residual_network(), images[8:]).reshape(32, -1).argmax(axis=1)
    (tmp_path / "held.csv").write_text("\n".join(map(str, right)))
    given = ("--data", tmp_path / "x.npz", "--validate", tmp_path / "held.npz", "--samples", 8)
    status, report = run_quantize(model, *given, "--validate-labels", tmp_path / "held.csv")
    assert status == 0, report
    assert (report["inputs"], report["held_out"]) == (8, {"data": "held.npz", "inputs": 32})
    assert report["accuracy"]["float"] == {"right": 32, "inputs": 32, "share": 1.0, "standard_error": 0.0}
    quantized = answers((tmp_path / "network.int8.onnx").read_bytes(), images[8:]).reshape(32, -1).argmax(axis=1)
    assert report["accuracy"]["quantized"]["right"] == (quantized == right).sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--validate", "x.npz"), "x.npz contains the calibration inputs"),
        (("--validate-labels", "labels.csv"), "labels of held-out inputs need these inputs"),
    ],
)
def test_held_out_inputs_are_others(
    options: tuple[str, ...], message: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", image=pictures(4))
    Path("labels.csv").write_text("1\n")
    status, report = run_quantize(model, "--data", "x.npz", *options)
    assert status == 1
    assert message in report["error"]["message"]
