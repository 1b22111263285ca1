"""Bias correction, adaptive rounding, equalization and rounds of calibration, tested on the outputs of the quantized
model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.build import Stage
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from service.core.settings import load_settings
from service.quantize.calibration.data import Data
from service.quantize.calibration.methods import affine
from service.quantize.calibration.observing import CalibrationSession, Children
from service.quantize.file.document import Document
from service.quantize.quantization import Calibration, Options
from service.quantize.rewrites.patterns import plan
from service.quantize.rewrites.rewriting import Form
from service.quantize.rewrites.widening import widen
from service.quantize.weights.fitting import Fit
from tests.support.float_networks import dense_network, pictures, residual_network
from tests.support.onnx_builder import OnnxBuilder

COUNT = 24
NEAREST = Fit(biases=False)


class Silent:
    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        pass


@pytest.fixture
def session(tmp_path: Path) -> CalibrationSession:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return CalibrationSession(scratch, Children(load_settings({"build_nice": 0}), Silent(), {}))


@pytest.fixture
def data(tmp_path: Path) -> Data:
    np.savez(tmp_path / "x.npz", image=pictures(COUNT))
    return Data(tmp_path / "x.npz")


def convolutions(groups: int = 1) -> bytes:
    """Returns a model of one layer with a bias and a real result: `image` -> `y` `[1, 12, 14, 14]`. The pixels of its
    inputs are correlated.
    """
    rng, model = np.random.default_rng(0), OnnxBuilder()
    weights = rng.normal(0, 1, (12, 3 // groups, 3, 3)) * rng.uniform(0.1, 3, (12, 1, 1, 1))
    operands = [model.input("image", "float32", (1, 3, 16, 16)), model.constant(weights, "float32")]
    y = model.node("Conv", [*operands, model.constant(rng.normal(0, 1, 12), "float32")], group=groups)
    model.output(model.node("Tanh", [y]), "float32")
    return model.build(13)


def of_layer(file: bytes, tensor: str) -> Array:
    """Returns a tensor of a file for all pictures, `[count, …]`. The oracle computes it."""
    module = import_model(Document(file).serialize([tensor])).module
    return np.stack([oracle.run(module, get_mode(ONNXRUNTIME), [image[None]])[0] for image in pictures(COUNT)])


def layers_alone(float_file: bytes, quantized: bytes) -> tuple[Array, Array]:
    """Returns the first layer's results on its stored operand, `[count, …]` each: with float weights, and with those of
    the quantized file. The rounding of the results themselves is excluded.
    """
    document = Document(quantized)
    (layer,) = [node for node in document.nodes if node.op_type == "Conv"]
    real = Document(float_file)
    weights, bias = (real.constants[name] for name in next(n for n in real.nodes if n.op_type == "Conv").inputs[1:])
    fitted = of_layer(quantized, layer.outputs[0])
    names = dict(enumerate(layer.inputs))
    operand = document.add_constant("float_weights", weights)
    document.nodes = [
        replace(node, inputs=(names[0], operand, document.add_constant("float_bias", bias))) if node is layer else node
        for node in document.nodes
    ]
    return of_layer(document.serialize(), layer.outputs[0]), fitted


def bias_steps(quantized: bytes) -> Array:
    """Returns the size of a bias step for each channel of the first layer, `[channels]`."""
    document = Document(quantized)
    (layer,) = [node for node in document.nodes if node.op_type == "Conv"]
    (made,) = [node for node in document.nodes if node.outputs[0] == layer.inputs[2]]
    return document.constants[made.inputs[1]]


@pytest.mark.parametrize("groups", [1, 3])
def test_bias_correction_leaves_no_mean_error(session: CalibrationSession, data: Data, groups: int) -> None:
    """Half a step of the bias may remain. A step is the operand's scale times the weights' scale."""
    file = convolutions(groups)
    calibration = Calibration(file, session, data, Options())
    errors, halves = {}, {}
    for fit in (NEAREST, Fit(), Fit(rounding=True)):
        made = calibration.quantize(Options(fit=fit)).file
        real, fitted = layers_alone(file, made)
        errors[fit] = np.abs((fitted - real).mean(axis=(0, 1, 3, 4), dtype=np.float64))
        halves[fit] = bias_steps(made) / 2 + 1e-6  # sums in float32
    assert (errors[NEAREST] > halves[NEAREST]).sum() > 6
    for fit in (Fit(), Fit(rounding=True)):
        assert (errors[fit] <= halves[fit]).all()


@pytest.mark.parametrize(
    ("groups", "share"), [(1, 0.6), (3, 0.8)]
)  # with one group, each sum has 27 weights; with three groups, 9 weights
def test_adaptive_rounding_reduces_the_error_of_every_channel(
    session: CalibrationSession, data: Data, groups: int, share: float
) -> None:
    file = convolutions(groups)
    rounded = Fit(biases=False, rounding=True)
    calibration = Calibration(file, session, data, Options(fit=rounded))
    errors = {}
    for fit in (NEAREST, rounded):
        real, fitted = layers_alone(file, calibration.quantize(Options(fit=fit)).file)
        errors[fit] = ((fitted - real).astype(np.float64) ** 2).sum(axis=(0, 1, 3, 4))
    nearest, least = errors[NEAREST], errors[rounded]
    assert (least <= nearest * (1 + 1e-4)).all(), "the error may be larger only by the rounding of float32"
    assert least.sum() < share * nearest.sum()


def test_a_network_gets_closer_to_float(session: CalibrationSession, data: Data) -> None:
    fit = Fit(rounding=True)
    calibration = Calibration(residual_network(), session, data, Options(fit=fit))
    plain, fitted = (
        calibration.measure(calibration.quantize(options)).outputs["scores"]
        for options in (Options(fit=NEAREST), Options(fit=fit))
    )
    assert fitted > plain


@pytest.mark.slow
def test_fitted_weights_are_those_that_the_switches_measure(session: CalibrationSession, data: Data) -> None:
    options = Options(fit=Fit(rounding=True))
    calibration = Calibration(residual_network(), session, data, options)
    all_in_integers = calibration.sensitivity(options).curve()[0]
    measured = calibration.measure(calibration.quantize(options)).outputs["scores"]
    assert all_in_integers.noise == pytest.approx(measured, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [Options(), Options(fit=Fit(rounding=True)), Options(equalize=True)],
    ids=["defaults", "rounding", "equalized"],
)
@pytest.mark.parametrize("seed", range(2))
def test_raising_layers_to_16x8_adds_no_noise(
    session: CalibrationSession, data: Data, seed: int, options: Options
) -> None:
    """Each layer is measured in 16x8 alone, so that no other layer's noise can cancel its own. Then all of them are in
    16x8.
    """
    calibration = Calibration(residual_network(seed), session, data, options)
    ranked = calibration.sensitivity(options)
    assert {name: noise for name, noise in ranked.wide.items() if noise < ranked.layers[name]} == {}
    integer, wide = (
        calibration.measure(calibration.quantize(each)).outputs["scores"]
        for each in (options, options.raising(wide=ranked.names))
    )
    assert wide > integer + 5


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 3])
def test_biases_of_16x8_layers_are_corrected(session: CalibrationSession, data: Data, groups: int) -> None:
    file = convolutions(groups)
    calibration = Calibration(file, session, data, Options())
    (name,) = (node.outputs[0] for node in Document(file).nodes if node.op_type == "Conv")
    errors = {}
    for fit in (NEAREST, Fit(), Fit(rounding=True)):
        real, fitted = layers_alone(file, calibration.quantize(Options(fit=fit, wide=[name])).file)
        errors[fit] = np.abs((fitted - real).mean(axis=(0, 1, 3, 4), dtype=np.float64))
    assert errors[NEAREST].max() > 1e-3
    assert max(errors[Fit()].max(), errors[Fit(rounding=True)].max()) < 1e-5  # sums in float32


def test_a_layer_without_a_fit_beside_fitted_ones_is_a_bug() -> None:
    """If the fits do not contain a layer, an error is raised. Its weights are not silently rounded to the nearest
    steps.
    """
    document = Document(convolutions())
    planned = plan(document)
    types = {name: affine(-4, 4, "uint16") for name in planned.tensors}
    with pytest.raises(KeyError):
        widen(document, planned.layers, Form(types, fits={}, real_biases=True))


@pytest.mark.slow
def test_matrices_are_fitted_too(session: CalibrationSession, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 1, (16, 6, 40)) + np.random.default_rng(1).normal(0, 1, (16, 6, 1))
    np.savez(tmp_path / "rows.npz", x=x.astype(np.float32))
    fit = Fit(rounding=True)
    calibration = Calibration(dense_network(), session, Data(tmp_path / "rows.npz"), Options(fit=fit))
    plain, fitted = (
        min(calibration.measure(calibration.quantize(each)).outputs.values())
        for each in (Options(fit=NEAREST), Options(fit=fit))
    )
    assert fitted > plain + 0.5


@pytest.mark.slow
def test_an_equalized_model_computes_the_same_as_the_float_model(session: CalibrationSession, data: Data) -> None:
    options = Options(equalize=True)
    calibration = Calibration(residual_network(), session, data, options)
    plain = Calibration(residual_network(), session, data, Options())
    np.testing.assert_allclose(
        calibration.measure(calibration.quantize(options)).float_answers,
        plain.measure(plain.quantize(Options())).float_answers,
        atol=1e-5,
    )


@pytest.mark.slow
def test_narrow_channels_before_depthwise_convolutions_get_enough_steps(
    session: CalibrationSession, data: Data
) -> None:
    """Without more steps, a channel with a hundredth of the range would have only three steps, and less than 20 dB."""
    rng, model = np.random.default_rng(0), OnnxBuilder()
    narrow, x = np.array([1, 0.01], np.float32).reshape(2, 1, 1, 1), model.input("image", "float32", (1, 3, 16, 16))
    first = model.node("Conv", [x, model.constant(rng.normal(0, 1, (2, 3, 1, 1)) * narrow, "float32")])
    bounds = [model.constant(np.array(end), "float32") for end in (0, 6)]
    middle = model.node("Clip", [first, *bounds])
    model.output(model.node("Conv", [middle, model.constant(1 / narrow, "float32")], group=2), "float32")
    calibration = Calibration(model.build(13), session, data, Options())
    (noise,) = calibration.measure(calibration.quantize(Options())).outputs.values()
    assert noise > 30


@pytest.mark.slow
def test_later_rounds_calibrate_on_the_quantized_prefix(session: CalibrationSession, data: Data) -> None:
    """The steps are so coarse that ranges change. The ranges of the second round are those of the first round's
    file.
    """
    coarse = Options("power-of-two")
    first, second = (Calibration(residual_network(), session, data, replace(coarse, rounds=n)) for n in (0, 1))
    assert set(first.statistics) == set(second.statistics)
    assert first.statistics["image"].high == second.statistics["image"].high
    moved = [name for name, seen in first.statistics.items() if seen.high != second.statistics[name].high]
    assert len(moved) > 4
    file = first.quantize(coarse).file
    name = next(node for node in Document(file).nodes if node.op_type == "GlobalAveragePool").outputs[0]
    assert second.statistics[name].high == pytest.approx(of_layer(file, name).max(), rel=1e-5)
