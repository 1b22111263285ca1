"""The coverage report names exactly the operators that compute in float."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from service.compiler.importers.facts import facts_of
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn.coverage import report
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.joins import join_moves
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes import simplify
from service.compiler.qnn.transposes import move_transposes
from service.core.artifacts.floating import FLOAT
from service.core.builds.numerics import ONNXRUNTIME
from service.quantize.calibration.methods import affine
from service.quantize.file.document import Document
from service.quantize.rewrites.patterns import plan
from service.quantize.rewrites.rewriting import Form, rewrite
from service.quantize.rewrites.uncalibrated import blocked
from service.quantize.rewrites.widening import widen
from tests.support.float_networks import dense_network, residual_network
from tests.support.onnx_builder import OnnxBuilder


def reasons(module: tvm.IRModule) -> set[str]:
    return {each["reason"] for each in report(module)["floating"]}


@pytest.mark.parametrize("bits", [4, 8])
def test_a_model_with_weights_in_blocks_is_quantized(bits: int) -> None:
    imported = import_model(blocked(dense_network(), bits).file)
    facts = facts_of(imported)
    assert facts.notices == ()
    assert str(facts.weights) == f"uint{bits} per-block, asymmetric"
    products = [each["reason"] for each in report(imported.module)["floating"] if each["macs"]]
    assert products == 3 * [f"the model multiplies real values by weights of {bits} bits"]
    assert facts.computes == f"weights of {bits} bits, computes in float32"


def test_a_table_of_stored_rows_is_quantized() -> None:
    rng, model = np.random.default_rng(0), OnnxBuilder()
    operands = [model.nibbles(rng.integers(0, 16, (20, 32)), "uint4"), model.input("i", "int64", (1, 3))]
    operands.append(model.constant(rng.uniform(0.1, 1, (20, 2)), "float32"))
    model.output(model.microsoft("GatherBlockQuantized", operands, block_size=16), "float32")
    imported = import_model(model.build(21))
    facts = facts_of(imported)
    assert (facts.notices, facts.computes) == ((), "weights of 4 bits, computes in float32")
    assert str(facts.weights) == "uint4 per-block, asymmetric"
    assert reasons(imported.module) == {"the model reads rows of weights of 4 bits"}
    assert reasons(simplify(imported.module, get_mode(ONNXRUNTIME)).module) == reasons(imported.module)


@pytest.mark.parametrize("storage", ["int8", "uint8"])
def test_a_model_with_dequantized_weights_is_quantized(storage: str) -> None:
    rng, model = np.random.default_rng(0), OnnxBuilder()
    x = model.input("x", "float32", (1, 6, 40))
    weights = [model.constant(rng.integers(0, 7, (40, 8)), storage), model.constant(rng.uniform(0.1, 1, 8), "float32")]
    y = model.node("MatMul", [x, model.node("DequantizeLinear", weights, axis=1)])
    model.output(y, "float32", (1, 6, 8))
    imported = import_model(model.build(21))
    facts = facts_of(imported)
    assert (facts.notices, facts.activations) == ((), None)
    assert facts.weights is not None
    assert (facts.weights.storage, facts.weights.granularity) == ((storage,), ("per-axis",))
    assert reasons(imported.module) == {"the model multiplies real values by weights of 8 bits"}


def test_layers_of_16x8_multiply_weights_of_8_bits() -> None:
    document = Document(residual_network())
    planned = plan(document)
    types = {name: affine(-4, 8, "uint16") for name in planned.tensors}
    widen(document, planned.layers, Form(types, real_biases=True))
    imported = import_model(document.serialize())
    products = [each["reason"] for each in report(imported.module)["floating"] if each["macs"]]
    assert set(products) == {"the model multiplies real values by weights of 8 bits"}
    assert facts_of(imported).notices == ()


def test_a_float_model_is_float() -> None:
    imported = import_model(residual_network())
    assert reasons(imported.module) == {FLOAT}
    (notice,) = facts_of(imported).notices
    assert notice.startswith("this model is float and not quantized")


def test_operators_replaced_by_a_table_do_not_compute_in_float() -> None:
    """The operators are hard swish as exporters write it. Its operand is also an output of the model."""
    rng, model = np.random.default_rng(0), OnnxBuilder()
    x = model.input("x", "float32", (1, 4, 8, 8))
    three, zero, six = (model.constant(value, "float32") for value in (3.0, 0.0, 6.0))
    weights = [model.constant(rng.normal(0, 0.4, (4, 4, 1, 1)), "float32") for _ in range(2)]
    first = model.node("Conv", [x, weights[0]], kernel_shape=[1, 1])
    gate = model.node("Clip", [model.node("Add", [first, three]), zero, six])
    swish = model.node("Div", [model.node("Mul", [first, gate]), six])
    model.output(model.node("Conv", [swish, weights[1]], kernel_shape=[1, 1]), "float32", (1, 4, 8, 8))
    model.output(first, "float32", (1, 4, 8, 8))
    document = Document(model.build(17))
    planned = plan(document)
    rewrite(document, planned, Form({name: affine(-4, 8, "uint8") for name in planned.observed}))
    module = import_model(document.serialize()).module
    simplified = simplify(decompose(move_transposes(join_moves(module))), get_mode(ONNXRUNTIME))
    tables = simplified.done["tables made"]
    assert len(tables) == 1
    before, after = ({each["op"].split("_")[0] for each in report(module, names)["floating"]} for names in ((), tables))
    assert before - after == {"Add", "Clip", "Div", "Mul"}
    assert after == {"QuantizeLinear", "DequantizeLinear"}
