"""Functions of float32 against ONNX Runtime's: the same bits, for numbers of every size."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.qnn.numerics.real_functions import FUNCTIONS
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.real_values import of_every_size

OPERATORS = {"erf": "Erf", "exp": "Exp", "logistic": "Sigmoid", "tanh": "Tanh"}


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_function_is_onnx_runtimes(name: str) -> None:
    x = of_every_size()
    builder = OnnxBuilder()
    builder.output(builder.node(OPERATORS[name], [builder.input("x", "float32", x.shape)]), "float32")
    (theirs,) = Reference(builder.build(18), optimized=True)([x])
    with np.errstate(all="ignore"):
        ours = FUNCTIONS[name].evaluate(x)
    np.testing.assert_array_equal(ours, theirs)
