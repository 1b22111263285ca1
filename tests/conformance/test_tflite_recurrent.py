"""Operators and variables that keep state, compared with LiteRT in both modes. Each call starts from the state that the
previous one left.
"""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, MODES_OF
from service.core.errors import MalformedModel, Unsupported
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.qnn_models import compiled_function
from tests.support.tflite_builder import ModelBuilder, Quant, serialize
from tests.support.tflite_recurrent import FIRST, MODELS, lstm_model, variable_model

CALLS = 5
COMPILED = [name for name in MODELS if "one step" in name or name in ("svdf", "svdf without a past", "variable")]


@pytest.mark.parametrize("mode", MODES_OF["tflite"])
@pytest.mark.parametrize("name", MODELS)
def test_sequence_equals_litert(name: str, mode: str) -> None:
    assert_oracle_equals_litert(MODELS[name](), CALLS, mode)


@pytest.mark.parametrize("bits", range(7))
def test_every_scale_of_the_cells_equals_litert(bits: int) -> None:
    for seed in range(3):
        assert_oracle_equals_litert(lstm_model(cell_bits=bits, cells=16, seed=seed), CALLS)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_sequence_equals_the_oracle(name: str) -> None:
    imported, mode = import_model(MODELS[name]()), get_mode(LITERT_REFERENCE)
    rng = np.random.default_rng(2)
    ones = [[rng.integers(-128, 128, spec.shape, np.int8) for spec in imported.signature.inputs] for _ in range(CALLS)]
    states = [state.first() for state in imported.signature.states]
    expected = oracle.run_sequence(imported.module, mode, ones, states)
    run = compiled_function(canonicalize(imported.module, mode))
    for inputs, wanted in zip(ones, expected, strict=True):
        results = run([*inputs, *states])
        states = results[len(wanted) :]
        for ours, theirs in zip(results, wanted, strict=False):
            np.testing.assert_array_equal(ours, theirs)


def test_states_are_named_and_begin_where_litert_begins() -> None:
    states = import_model(lstm_model()).signature.states
    assert [(state.spec.name, state.spec.shape) for state in states] == [("hidden", (1, 8)), ("cell", (1, 8))]
    assert [set(state.first().reshape(-1).tolist()) for state in states] == [{-5}, {0}]
    (state,) = import_model(variable_model(FIRST, Quant(0.1, 3), shared_name="past")).signature.states
    assert state.spec.name == "past"
    np.testing.assert_array_equal(state.first(), FIRST)


def test_a_variable_that_nothing_writes_is_a_constant() -> None:
    builder = ModelBuilder()
    quant = Quant(0.1, 3)
    x, handle = builder.tensor("x", FIRST.shape, np.int8, quant), builder.resource("handle")
    past, y = (builder.tensor(name, FIRST.shape, np.int8, quant) for name in ("past", "y"))
    builder.call_once({"": (FIRST, quant)})
    builder.operator("VAR_HANDLE", [], [handle], _handle(""))
    builder.operator("READ_VARIABLE", [handle], [past])
    builder.operator("MAXIMUM", [past, x], [y])
    data = builder.build([x], [y])
    assert not import_model(data).signature.states
    assert_oracle_equals_litert(data, CALLS)


def test_a_variable_without_a_first_value_is_refused() -> None:
    builder = ModelBuilder()
    x, handle = builder.tensor("x", (1, 4), np.int8, Quant(0.1)), builder.resource("handle")
    past, y = (builder.tensor(name, (1, 4), np.int8, Quant(0.1)) for name in ("past", "y"))
    builder.operator("VAR_HANDLE", [], [handle], _handle("level"))
    builder.operator("READ_VARIABLE", [handle], [past])
    builder.operator("MAXIMUM", [past, x], [y])
    with pytest.raises(MalformedModel, match="READ_VARIABLE #1 reads the variable level before it has a value"):
        import_model(builder.build([x], [y]))


def test_layer_normalization_is_refused_by_name() -> None:
    model = schema.ModelT.InitFromPackedBuf(lstm_model(), 0)
    operator = model.subgraphs[0].operators[0]
    operator.inputs = np.array([*operator.inputs[:21], operator.inputs[13], -1, -1], np.int32)
    with pytest.raises(Unsupported, match="UNIDIRECTIONAL_SEQUENCE_LSTM #0 has layer normalization"):
        import_model(serialize(model))


def test_a_call_of_very_many_steps_is_refused() -> None:
    with pytest.raises(Unsupported, match="has 257 steps; at most 256 can be compiled"):
        import_model(lstm_model(steps=257))


def _handle(name: str) -> schema.VarHandleOptionsT:
    return schema.VarHandleOptionsT(sharedName=name)
