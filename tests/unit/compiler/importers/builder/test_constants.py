"""Equal uses share one constant, and all constants together have a limited size."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.builder.constants import Constants
from service.core.errors import Unsupported
from service.core.models.arrays import Array


def turned(values: Array) -> Array:
    return values.T


def test_equal_uses_share_one_constant() -> None:
    constants = Constants(0, Unsupported)
    data = np.arange(6, dtype=np.int64).reshape(2, 3)
    first = constants.expr("w", data, "w")
    assert constants.expr("w", data, "w").same_as(first)
    assert constants.expr("w", data, "w", turned).value.numpy().tolist() == data.T.tolist()
    assert not constants.expr(None, data, "").same_as(constants.expr(None, data, ""))
    assert first.value.numpy().dtype == np.int64


def test_the_size_of_all_constants_is_limited() -> None:
    constants = Constants(100, lambda label: Unsupported(f"{label} is too large"))
    assert constants.affords(1 << 20)
    assert not constants.affords(101)
    constants.charge(100, "a")
    with pytest.raises(Unsupported, match="b is too large"):
        constants.expr("b", np.zeros(1), "b")
