"""The initial values of states."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.auto import import_model
from service.core.errors import MalformedModel
from tests.support.tflite_builder import ModelBuilder, Quant


def model(zero_point: int) -> bytes:
    """Returns a model that adds its input to a variable."""
    builder, quant = ModelBuilder(), Quant(0.5, 3)
    x, y = (builder.tensor(name, (1, 2), np.int8, quant) for name in "xy")
    state = builder.variable("state", (1, 2), np.int8, Quant(0.5, zero_point))
    builder.operator("ADD", [x, state], [y], schema.AddOptionsT())
    return builder.build([x], [y])


def test_a_variable_starts_at_its_zero_point() -> None:
    (state,) = import_model(model(-7)).signature.states
    assert state.initial == np.full((1, 2), -7, np.int8).tobytes()


@pytest.mark.parametrize("zero_point", [128, -129, 26776436736])
def test_a_zero_point_that_the_variable_cannot_store_is_refused(zero_point: int) -> None:
    with pytest.raises(MalformedModel, match=f"state.* has the zero point {zero_point}, but is int8"):
        import_model(model(zero_point))
