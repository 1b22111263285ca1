"""Every error that refuses a model also tells users what to do next."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.core.errors import MalformedModel, Unsupported
from tests.support.tflite_builder import ModelBuilder, Quant

UNIT = Quant(1.0)


def test_a_malformed_model_without_a_specific_hint_gets_a_general_one() -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 4), np.int8, UNIT) for name in ("x", "y"))
    builder.operator("RELU", [x, x], [y])
    with pytest.raises(MalformedModel, match="RELU #0 has 2 inputs") as caught:
        import_model(builder.build([x], [y]))
    assert "export the model again" in str(caught.value.hint)


def test_an_unsupported_attribute_without_a_specific_hint_gets_a_general_one() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4), np.int8, UNIT)
    y = builder.tensor("y", (1, 4), np.int8, Quant(2.0))
    builder.operator("MAXIMUM", [x, x], [y])
    with pytest.raises(Unsupported, match="MAXIMUM #0 reads") as caught:
        import_model(builder.build([x], [y]))
    assert "cut the model before it" in str(caught.value.hint)


def test_a_specific_hint_is_kept() -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 4), np.int8, UNIT) for name in ("x", "y"))
    builder.operator("CONV_3D", [x], [y])
    with pytest.raises(Unsupported) as caught:
        import_model(builder.build([x], [y]))
    assert str(caught.value.hint).startswith("convert the model without them")
