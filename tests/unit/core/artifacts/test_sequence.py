"""Tests of the state of a sequence, and of states in a signature."""

from __future__ import annotations

import numpy as np
import pytest

from service.core.artifacts.buffers import is_aligned
from service.core.artifacts.sequence import SequenceState
from service.core.errors import CorruptBlob, Unsupported
from service.core.models.signature import ModelSignature, State, TensorSpec

SPEC = TensorSpec("x", "INT8", (1, 2))
RAMP = np.arange(6, dtype="<i2").reshape(2, 3)


def signature(*initial: np.ndarray) -> ModelSignature:
    states = (
        State(
            TensorSpec(f"s{index}", {"int16": "INT16", "float32": "FP32"}[each.dtype.name], each.shape), each.tobytes()
        )
        for index, each in enumerate(initial)
    )
    return ModelSignature((SPEC,), (SPEC,), tuple(states))


@pytest.mark.parametrize(
    ("initial", "written"),
    [
        (np.full((2, 3), -7, "<i2"), -7),
        (np.full((2, 3), 0.5, "<f4"), 0.5),
        (RAMP, "AAABAAIAAwAEAAUA"),
        (np.full((1, 1), np.nan, "<f4"), "AADAfw=="),
    ],
)
def test_initial_values_survive_json(initial: np.ndarray, written: object) -> None:
    whole = signature(initial).to_json()
    assert whole["states"][0]["initial"] == written
    assert ModelSignature.from_json(whole) == signature(initial)


def test_an_initial_value_of_another_size_is_refused() -> None:
    whole = signature(RAMP).to_json()
    whole["states"][0]["shape"] = [2, 4]
    with pytest.raises(CorruptBlob, match="'s0'"):
        ModelSignature.from_json(whole)


def test_a_signature_without_states_has_no_member_for_them() -> None:
    assert "states" not in signature().to_json()


def test_states_exclude_other_batch_sizes() -> None:
    with pytest.raises(Unsupported, match="keeps state"):
        signature(RAMP).batched(8)
    assert signature(RAMP).batched(1) == signature(RAMP)


def test_the_next_state_may_share_memory_with_the_current_one() -> None:
    state = SequenceState(signature(RAMP, RAMP + 10))
    state.advance(reversed(state.tensors))
    np.testing.assert_array_equal(state.tensors, [RAMP + 10, RAMP])
    assert all(is_aligned(tensor) for tensor in state.tensors)
    assert state.size_bytes == 24
