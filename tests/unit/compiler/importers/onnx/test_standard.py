"""Single operators are converted by ONNX's rules, for importers of other formats."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.importers.builder.module import build_main, param
from service.compiler.importers.onnx.standard import Standard
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import MalformedModel, Unsupported


def test_operators_on_expressions_are_emitted() -> None:
    builder, x = relax.BlockBuilder(), param("x", (2, 3), "float32")

    def convert() -> list[relax.Expr]:
        standard = Standard(builder, 100)
        (total,) = standard.convert("mean m", "ReduceMean", [x, np.array([1], np.int64)], {"keepdims": 1})
        return standard.convert("minus d", "Sub", [x, total], {})

    build_main(builder, [x], convert)
    data = np.array([[1, 2, 3], [4, 6, 5]], np.float32)
    (result,) = oracle.run(builder.get(), get_mode(ONNXRUNTIME), [data])
    np.testing.assert_array_equal(result, [[-1, 0, 1], [-1, 1, 0]])


def test_operators_on_known_elements_are_computed() -> None:
    (made,) = Standard(relax.BlockBuilder(), 100).convert("t", "Transpose", [np.ones((2, 3), np.float32)], {})
    assert isinstance(made, np.ndarray)
    assert made.shape == (3, 2)


def test_errors_have_the_label_of_the_file() -> None:
    standard, x = Standard(relax.BlockBuilder(), 100), param("x", (2, 3), "float32")
    with pytest.raises((MalformedModel, Unsupported), match=r"^Pooling pool0 ") as caught:
        standard.convert("Pooling pool0", "MaxPool", [x], {"kernel_shape": (2, 2)}, stem="pool0")
    assert caught.value.op == "Pooling pool0"
