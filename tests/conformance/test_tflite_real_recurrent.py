"""Recurrent layers of real values equal LiteRT's within rounding, over several calls."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import Unsupported
from tests.support import evidence, litert
from tests.support.conformance import assert_compiled_equals
from tests.support.tflite_real_recurrent import MODELS, bidirectional_lstm, rnn

# The results are below 1, and sums have at most nine terms.
ABSOLUTE = 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_of_calls_is_litert_within_rounding(name: str) -> None:
    data = MODELS[name]()
    imported, loaded = import_model(data), litert.interpreter(data)
    rng = np.random.default_rng(1)
    calls = [[x / 4 for x in litert.random_inputs(loaded, rng)] for _ in range(3)]
    expected = [litert.run(loaded, call) for call in calls]
    states = [state.first() for state in imported.signature.states]
    actual = oracle.run_sequence(imported.module, get_mode(LITERT_REFERENCE), calls, states)
    evidence.compare(imported, LITERT_REFERENCE, actual, expected, ABSOLUTE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm, everything, float32", "lstm, int8", "svdf, float32"])
def test_compiled_code_equals_the_oracle(name: str) -> None:
    data = MODELS[name]()
    imported, rng = import_model(data), np.random.default_rng(1)
    calls = [litert.random_inputs(litert.interpreter(data), rng) for _ in range(3)]
    states = [state.first() for state in imported.signature.states]
    expected = oracle.run_sequence(imported.module, get_mode(LITERT_REFERENCE), calls, states)
    assert_compiled_equals(imported.module, LITERT_REFERENCE, calls, states, expected)


def test_merged_outputs_of_several_samples_are_refused() -> None:
    with pytest.raises(Unsupported, match="merges the outputs of 2 samples, of which LiteRT overwrites a part"):
        import_model(bidirectional_lstm(merge=True))


def test_stored_weights_of_a_time_major_bidirectional_rnn_are_refused() -> None:
    with pytest.raises(Unsupported, match="has int8 weights and a time-major input"):
        import_model(rnn("BIDIRECTIONAL_SEQUENCE_RNN", stored=True, time_major=True))
