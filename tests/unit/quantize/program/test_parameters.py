"""The calibration program with the numbers of a choice computes what the file of this choice computes.

The program scales a sum to a real value, and then divides it by the result's scale. The file multiplies by the quotient
of both. So a value may be rounded to the adjacent step if it is within about 1e-5 steps of the middle between two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from service.quantize.calibration.methods import affine
from service.quantize.file.document import Document
from service.quantize.program.parameters import (
    Numbers,
    OtherWeights,
    Stored,
    float_numbers,
    stored_numbers,
    variants_of,
)
from service.quantize.program.slots import Slots
from service.quantize.program.writing import write_program
from service.quantize.rewrites.narrowing import narrow
from service.quantize.rewrites.patterns import Plan
from service.quantize.rewrites.rewriting import Form, rewrite
from service.quantize.rewrites.widening import widen
from service.quantize.steps.fold import fold
from service.quantize.steps.options import Options
from service.quantize.weights.spreading import spreadable
from tests.support.float_networks import INPUT, residual_network
from tests.support.float_operators import CASES, MORE, SHAPE, WITH_SUMS, network
from tests.support.onnx_builder import OnnxBuilder

MODE = get_mode(ONNXRUNTIME)


@dataclass(frozen=True)
class Compiled:
    """A calibration program in the oracle's form. Its outputs are the model's and the results before they are
    stored."""

    file: bytes
    slots: tuple[Slots, ...]
    unrounded: tuple[str, ...]

    def run(self, x: Array, numbers: Sequence[Numbers]) -> list[Array]:
        flat = [number for each in numbers for number in each]
        return list(oracle.run(import_model(self.file).module, MODE, [x, *flat]))


def folded(data: bytes, factors: dict[str, Array] | None = None) -> tuple[Document, Plan]:
    found = fold(data, Options(), factors or {})
    return found.document, found.plan


def compiled(data: bytes, narrow_ones: Sequence[str] = ()) -> Compiled:
    document, plan = folded(data)
    weights = variants_of([Stored(document, plan, Form({}, real_biases=True))])
    outputs = document.outputs
    written = write_program(document, plan, weights, narrow_ones)
    ends = document.serialize([*outputs, *written.unrounded.values()])
    return Compiled(ends, written.slots, tuple(written.unrounded))


def types_of(plan: Plan, seed: int, storage: str) -> Form:
    """Returns random types that clip some values."""
    rng = np.random.default_rng(seed)
    return Form({name: affine(-rng.uniform(0, 3), rng.uniform(0.5, 3), storage) for name in plan.observed})


def depthwise_network() -> bytes:
    """Returns a network of a convolution, ReLU6 and a depthwise convolution."""
    rng, model = np.random.default_rng(0), OnnxBuilder()
    x = model.input("image", "float32", INPUT)
    rows = [model.constant(rng.normal(0, 1, shape), "float32") for shape in ((2, 3, 1, 1), (2,), (2, 1, 1, 1), (2,))]
    bounds = [model.constant(np.array(end), "float32") for end in (0, 6)]
    middle = model.node("Clip", [model.node("Conv", [x, *rows[:2]]), *bounds])
    model.output(model.node("Conv", [middle, *rows[2:]], group=2), "float32")
    return model.build(13)


def first_weights(document: Document) -> Array:
    """Returns the weights of the first convolution."""
    return document.constants[next(node for node in document.nodes if node.op_type == "Conv").inputs[1]]


def run_file(data: bytes, x: Array) -> list[Array]:
    return list(oracle.run(import_model(data).module, MODE, [x]))


def picture(seed: int, shape: tuple[int, ...] = SHAPE) -> Array:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


@pytest.mark.parametrize("name", [*CASES, *MORE])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 30), storage=st.sampled_from(["uint8", "int8"]))
def test_one_program_computes_every_quantized_file(name: str, seed: int, storage: str) -> None:
    """The program was written before the types were chosen. All outputs are equal, unless a value is in the middle
    between two steps."""
    data, x = network((CASES | MORE)[name], 3), picture(seed)
    program, (document, plan) = compiled(data), folded(data)
    numbers = stored_numbers(program.slots, Stored(document, plan, types_of(plan, seed, storage)))
    ours = program.run(x, numbers)
    form = types_of(plan, seed, storage)
    rewrite(document, plan, form)
    theirs, step = run_file(document.serialize(), x)[0], max(kind.scales[0] for kind in form.types.values())
    assert (ours[0] != theirs).mean() < 0.05
    np.testing.assert_allclose(ours[0], theirs, rtol=0, atol=2.01 * step)


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_results_are_observed_before_they_are_stored(name: str) -> None:
    """Octet computes the sums of a convolution with a bias in float32 if the result is real, so that they are rounded
    differently."""
    data, x = network((CASES | MORE)[name], 3), picture(1)
    program, (document, plan) = compiled(data), folded(data)
    seen = program.run(x, stored_numbers(program.slots, Stored(document, plan, types_of(plan, 5, "uint8"))))[1:]
    stored = rewrite(document, plan, types_of(plan, 5, "uint8"))
    file = document.serialize([stored[each].real for each in program.unrounded])
    for ours, theirs in zip(seen, run_file(file, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=4e-6 if name in WITH_SUMS else 0)


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_without_types_the_program_is_the_float_model(name: str) -> None:
    data, x = network((CASES | MORE)[name], 3), picture(0)
    program, (document, _) = compiled(data), folded(data)
    ours = program.run(x, float_numbers(program.slots, document))
    np.testing.assert_array_equal(ours[0], run_file(document.serialize(), x)[0])


def test_layers_of_a_network_can_be_float_int8_16x8_and_bfloat16() -> None:
    """The first two convolutions are float and 16x8, the third is bfloat16, and all other layers are int8."""
    data, x = residual_network(), picture(2, INPUT)
    every = fold(data, Options(), {}).plan
    real, wide, narrow_one, *_ = (layer.name for layer in every.layers if layer.node.op_type == "Conv")
    program = compiled(data, [narrow_one])
    options = Options(kept=[real], wide=[wide], bfloat16=[narrow_one])
    rest, whole = fold(data, options, {}), fold(data, Options(kept=[real], bfloat16=[narrow_one]), {})
    raised = [layer for layer in whole.plan.layers if layer.name == wide]
    integer = types_of(rest.plan, 3, "uint8")
    wide_types = {name: affine(-4, 4, "uint16") for name in whole.plan.tensors}
    document = rest.document
    in_float, in_bfloat16 = (float_numbers(program.slots, document, is_narrow=each) for each in (False, True))
    in_int8 = stored_numbers(program.slots, Stored(document, rest.plan, integer))
    in_16x8 = stored_numbers(program.slots, Stored(document, whole.plan, Form(wide_types, real_biases=True)))
    sets = {real: in_float, wide: in_16x8, narrow_one: in_bfloat16}
    numbers = [sets.get(each.layer.name, in_int8)[index] for index, each in enumerate(program.slots)]
    ours = program.run(x, numbers)[0]
    rewrite(document, rest.plan, integer)
    widen(document, raised, Form(wide_types, real_biases=True))
    narrow(document, [narrow_one])
    np.testing.assert_allclose(ours, run_file(document.serialize(), x)[0], rtol=0, atol=2e-3)
    others = program.run(x, in_int8)[0]
    assert np.abs(others - run_file(document.serialize(), x)[0]).max() > 2e-3


@pytest.mark.parametrize("storage", [None, "uint8"])
def test_spread_channels_need_no_other_program(storage: str | None) -> None:
    data, x = depthwise_network(), picture(4, INPUT)
    (name,) = spreadable(folded(data)[0])
    program, (document, plan) = compiled(data), folded(data, {name: np.array([1.0, 16.0], np.float32)})
    assert (first_weights(document) != first_weights(folded(data)[0])).any()
    if storage is None:
        ours = program.run(x, float_numbers(program.slots, document))[0]
    else:
        form = types_of(plan, 1, storage)
        ours = program.run(x, stored_numbers(program.slots, Stored(document, plan, form)))[0]
        rewrite(document, plan, form)
    np.testing.assert_allclose(ours, run_file(document.serialize(), x)[0], rtol=0, atol=1e-6)


def test_other_weights_need_another_program() -> None:
    data = residual_network()
    program, (document, plan) = compiled(data), folded(data)
    name = next(layer.node.inputs[1] for layer in plan.layers if layer.node.op_type == "Conv")
    document.set_constant(name, document.constants[name][::-1])
    with pytest.raises(OtherWeights):
        float_numbers(program.slots, document)
    with pytest.raises(OtherWeights):
        stored_numbers(program.slots, Stored(document, plan, types_of(plan, 0, "int8")))
