"""LSTM and GRU of ONNX, compared with ONNX Runtime. The results differ only by the order of the additions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import MalformedModel, Unsupported
from service.core.target import detect_host
from tests.support import evidence
from tests.support.examples import examples
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected

Real = NDArray[np.float32]
GATES = {"LSTM": 4, "GRU": 3}
STATES = {"LSTM": ("h", "c"), "GRU": ("h",)}


def layer(
    kind: str,
    direction: str = "forward",
    steps: int = 3,
    batch: int = 2,
    width: int = 5,
    size: int = 7,
    biased: bool = True,
    started: bool = True,
    outputs: tuple[str, ...] = ("y", "h", "c"),
    **attributes: Any,
) -> tuple[bytes, list[Real]]:
    """Returns a file with one layer, and inputs for it."""
    rng, builder, inputs = np.random.default_rng(steps + size), OnnxBuilder(), list[Real]()
    directions = 1 + (direction == "bidirectional")

    def real(*shape: int) -> Real:
        return rng.standard_normal(shape).astype(np.float32)

    def given_as(name: str, *shape: int) -> str:
        inputs.append(real(*shape))
        return builder.input(name, "float32", shape)

    rows = GATES[kind] * size
    names = [given_as("x", steps, batch, width)]
    names += [builder.constant(0.3 * real(directions, rows, each)) for each in (width, size)]
    names += [builder.constant(0.3 * real(directions, 2 * rows)) if biased else "", ""]
    names += [given_as(f"{state}0", directions, batch, size) if started else "" for state in STATES[kind]]
    while names[-1] == "":
        names.pop()
    outputs = outputs[: 1 + len(STATES[kind])]
    builder.node(kind, names, list(outputs), hidden_size=size, direction=direction, **attributes)
    for name in filter(None, outputs):
        builder.output(name, "float32")
    return builder.build(), inputs


def assert_near(file: bytes, inputs: list[Real]) -> None:
    """All values except the cell are below 1. A sum of 12 products is rounded at most 13 times, each time by a few
    times 2**-24.
    """
    expected = Reference(file, optimized=True)(inputs)
    imported = import_model(file)
    ours = oracle.run(imported.module, get_mode(ONNXRUNTIME), inputs)
    evidence.compare(imported, ONNXRUNTIME, [ours], [expected], 4e-6)


@settings(max_examples=examples(40))
@given(
    st.sampled_from(["LSTM", "GRU"]),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.integers(1, 6),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_answers_are_those_of_onnx_runtime(
    kind: str, direction: str, steps: int, batch: int, biased: bool, started: bool
) -> None:
    assert_near(*layer(kind, direction, steps, batch, biased=biased, started=started))


def test_the_state_is_reset_behind_its_product_where_the_file_says_so() -> None:
    assert_near(*layer("GRU", "bidirectional", linear_before_reset=1))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_weights_are_held_once_however_many_steps_there_are(kind: str) -> None:
    """If each step had its own copy of the weights, the constants would be far larger than the file, and the importer
    would refuse the model (`node.Constants`).
    """
    assert_near(*layer(kind, steps=200, width=16, size=48))


@pytest.mark.parametrize("outputs", [("y",), ("", "h"), ("", "h", "c"), ("y", "", "c")])
def test_outputs_that_nobody_reads_may_be_left_out(outputs: tuple[str, ...]) -> None:
    assert_near(*layer("LSTM", outputs=outputs))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_compiled_it_answers_what_the_oracle_does(kind: str, tmp_path: Any) -> None:
    file, inputs = layer(kind, "bidirectional", steps=4, width=24, size=32)
    module = import_model(file).module
    expected = oracle.run(module, get_mode(ONNXRUNTIME), inputs)
    _, compiled = run_selected(module, detect_host().target, ONNXRUNTIME, inputs, tmp_path)
    for own, wanted in zip(compiled, expected, strict=True):
        np.testing.assert_array_equal(own, wanted)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 257}, "has 257 steps; at most 256 can be compiled"),
        ({"activations": ["Affine", "Tanh", "Tanh"]}, "has the function affine without its parameters"),
        ({"activations": ["Sine", "Tanh", "Tanh"]}, "has the function sine, which cannot be compiled"),
        ({"activations": ["Tanh"]}, "has 1 functions for 1 directions"),
        ({"layout": 1}, "the attribute layout"),
        ({"direction": "sideways"}, "has the unknown direction sideways"),
    ],
)
def test_what_is_not_compiled_is_said(given: dict[str, Any], message: str) -> None:
    with pytest.raises((Unsupported, MalformedModel), match=message):
        import_model(layer("LSTM", **given)[0])
