"""An error in a branch that an input chooses names this input, so that the user can fix it."""

from __future__ import annotations

import pytest

from service.compiler.importers.auto import import_model
from service.core.errors import MalformedModel, Unsupported
from tests.support.onnx_builder import OnnxBuilder


def _branch(rows: int) -> bytes:
    branch = OnnxBuilder()
    branch.node("Reshape", ["x", branch.constant([rows, 2], "int64")], ["result"])
    branch.output("result", "float32")
    return branch.graph()


def _model(condition_of: str, other: int) -> bytes:
    """Returns a model whose `If` chooses between two rows and `other` rows of two."""
    model = OnnxBuilder()
    model.input("x", "float32", [2, 2])
    model.input("rate", "int64", [])
    condition = model.node("Equal", [model.node(condition_of, ["rate"]), model.constant(16000, "int64")])
    model.node("If", [condition], ["y"], then_branch=_branch(2), else_branch=_branch(other))
    model.output("y", "float32")
    return model.build()


@pytest.mark.parametrize("other", [4, 5])
def test_the_hint_names_the_input_that_chooses_the_branch(other: int) -> None:
    data = _model("Abs", other)
    with pytest.raises(Unsupported) as caught:
        import_model(data)
    assert "--fix rate=VALUE" in str(caught.value.hint)
    assert import_model(data, fixed={"rate": [16000]}).signature.outputs[0].shape == (2, 2)


def test_a_branch_that_a_shape_chooses_has_another_hint() -> None:
    with pytest.raises(MalformedModel) as caught:
        import_model(_model("Size", 5))
    assert "--fix" not in str(caught.value.hint)
