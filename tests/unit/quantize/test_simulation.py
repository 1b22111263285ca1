"""If the accumulator is wide enough, the simulated form equals the integer form bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.simulate import simulate as simulated_form
from service.core.builds.numerics import ONNXRUNTIME
from service.quantize.calibration.methods import affine
from service.quantize.file.document import Document
from service.quantize.rewrites.folding import drop_copies, fold_affine, unify
from service.quantize.rewrites.patterns import PATTERNS, plan
from service.quantize.rewrites.rewriting import Form, rewrite
from service.quantize.simulation import simulate
from tests.support.float_networks import residual_network
from tests.support.float_operators import CASES, MORE, SHAPE, WITH_SUMS, gemm, network
from tests.support.qnn_models import compile_and_run_all

MODE = get_mode(ONNXRUNTIME)


def quantized(data: bytes, seed: int, storage: str) -> tuple[Any, set[str]]:
    """Quantizes a model with types that clip some values. Returns the model and the operator types of its layers."""
    rng, document = np.random.default_rng(seed), Document(data)
    drop_copies(document)
    fold_affine(document)
    unify(document)
    planned = plan(document)
    types = {name: affine(-rng.uniform(0, 3), rng.uniform(0.5, 3), storage) for name in planned.observed}
    rewrite(document, planned, Form(types))
    return import_model(document.serialize()).module, {layer.node.op_type for layer in planned.layers}


def test_every_pattern_has_a_case() -> None:
    assert set(CASES) == set(PATTERNS)


@pytest.mark.parametrize("name", [*CASES, *MORE])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1 << 30), storage=st.sampled_from(["uint8", "int8"]))
def test_every_pattern_has_the_same_bits_in_both_forms(name: str, seed: int, storage: str) -> None:
    module, matched = quantized(network((CASES | MORE)[name], seed), seed, storage)
    assert name in matched or name in MORE
    inputs = [np.random.default_rng(seed).normal(0, 2, SHAPE).astype(np.float32)]
    simulated = simulate(module, MODE, inputs)
    for ours, integers in zip(simulated.outputs, oracle.run(module, MODE, inputs), strict=True):
        np.testing.assert_array_equal(ours, integers)
    assert bool(simulated.sums) == (name in WITH_SUMS)


def test_a_network_has_the_same_bits_in_both_forms() -> None:
    """The network has a folded batch normalization, a residual addition, pools and a dense layer."""
    module, _ = quantized(residual_network(), 3, "uint8")
    image = [np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)]
    simulated = simulate(module, MODE, image)
    np.testing.assert_array_equal(simulated.outputs[0], oracle.run(module, MODE, image)[0])
    assert len(simulated.sums) == 5


@pytest.mark.slow
def test_a_network_is_compiled_in_its_simulated_form() -> None:
    module, _ = quantized(residual_network(), 3, "uint8")
    image = [np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)]
    canonical = canonicalize(simulated_form(module, 16).module, MODE)
    simulated = simulate(module, MODE, image, bits=16)
    compiled = compile_and_run_all(canonical, image)
    np.testing.assert_array_equal(compiled[0], simulated.outputs[0])
    assert [int(extent[2]) for extent in compiled[1:]] == [sums.overflows for sums in simulated.sums.values()]


def test_an_accumulator_of_14_bits_overflows() -> None:
    """The sums of 144 products of 8-bit values need up to 22 bits (the example of the RFC)."""
    module, _ = quantized(network(gemm, 0), 0, "uint8")
    inputs = [np.random.default_rng(0).normal(0, 2, SHAPE).astype(np.float32)]
    wide, narrow = simulate(module, MODE, inputs), simulate(module, MODE, inputs, bits=14)
    ((name, sums),) = wide.sums.items()
    assert sums.overflows == 0
    assert 14 < sums.bits <= 23
    assert narrow.sums[name].bits == sums.bits
    assert narrow.sums[name].overflows > 0
    assert (narrow.outputs[0] != wide.outputs[0]).any()
    enough = simulate(module, MODE, inputs, bits=sums.bits)
    np.testing.assert_array_equal(enough.outputs[0], wide.outputs[0])
    assert simulate(module, MODE, inputs, bits=sums.bits - 1).sums[name].overflows > 0
