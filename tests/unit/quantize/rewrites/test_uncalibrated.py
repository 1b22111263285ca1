"""Dynamic quantization and weights in blocks. The importer converts the result to integer kernels."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.coverage import report
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import InvalidInput, Unsupported
from service.quantize.rewrites.uncalibrated import blocked, dynamic, in_blocks
from tests.support.float_networks import dense_network
from tests.support.onnx_builder import OnnxBuilder


def answer(data: bytes, x: np.ndarray) -> np.ndarray:
    return oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [x])[0]


def rows(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (1, 6, 40)).astype(np.float32)


def test_operands_are_stored_once_and_multiplied_as_integers() -> None:
    made = dynamic(dense_network())
    kinds = [operator.op_type for operator in read_model(made.file).operators]
    assert kinds.count("DynamicQuantizeLinear") == 2, "the first two products read one tensor"
    assert kinds.count("MatMulInteger") == len(made.layers) == 3
    assert report(import_model(made.file).module)["integer_percent"] == 100


def test_dynamic_quantization_has_the_error_of_8_bits() -> None:
    real, ours = answer(dense_network(), rows()), answer(dynamic(dense_network()).file, rows())
    assert 0 < ((real - ours) ** 2).sum() < 1e-3 * (real**2).sum()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [16, 32, 64])
def test_weights_in_blocks_have_an_error_of_at_most_half_a_step(bits: int, block: int) -> None:
    weights = np.random.default_rng(bits).normal(0, 1, (5, 40)).astype(np.float32)
    steps, scales, points = in_blocks(weights, bits, block)
    real = (steps - points[:, :, None].astype(np.float32)) * scales[:, :, None]
    apart = np.abs(real.reshape(5, -1)[:, :40] - weights)
    # Rounding causes up to half a step. At the ends of the range, the rounded zero point adds up to half a step.
    assert (apart <= 1.001 * scales.repeat(block, axis=1)[:, :40]).all()
    assert steps.max() < 1 << bits


@pytest.mark.parametrize(("bits", "least_db"), [(4, 15), (8, 40)])
def test_a_network_with_weights_in_blocks_is_close_to_the_float_network(bits: int, least_db: float) -> None:
    made = blocked(dense_network(), bits, 16)
    assert len(made.file) < len(dense_network()) * (0.45 if bits == 4 else 0.65)
    real, ours = answer(dense_network(), rows()), answer(made.file, rows())
    assert 10 * np.log10((real**2).sum() / ((real - ours) ** 2).sum()) > least_db


def test_a_model_without_matrices_is_refused() -> None:
    model = OnnxBuilder()
    model.output(model.node("Relu", [model.input("x", "float32", [1, 4])]), "float32")
    with pytest.raises(Unsupported, match="multiplies by a constant matrix"):
        dynamic(model.build())
    with pytest.raises(Unsupported, match="quantized already"):
        dynamic(dynamic(dense_network()).file)


@pytest.mark.parametrize(("bits", "block"), [(3, 32), (4, 24), (8, 8)])
def test_other_block_sizes_are_refused(bits: int, block: int) -> None:
    with pytest.raises(InvalidInput):
        blocked(dense_network(), bits, block)
