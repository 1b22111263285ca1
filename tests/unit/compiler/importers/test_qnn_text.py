"""The importer of QNN graphs as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.compiler.importers.auto import import_model
from service.compiler.qnn.printer import complete_text_of
from service.core.errors import MalformedModel, Unsupported
from service.core.models.signature import TensorSpec

EXAMPLES = Path(__file__).parents[4] / "examples"
GRAPH = """\
// qnn 1
!0 = !quant.uniform<i8:f32, 0.5:3>
main
  %0: tensor<1x4xi8> loc("x")
  %1: tensor<1x4xi8> loc("x")
  %2 = qnn.add(%0, %1) {lhs_type = !0, rhs_type = !0, out_type = !0} : tensor<1x4xi8> loc("sum")
  return %2
"""


def test_names_of_parameters_and_results_are_those_of_the_signature() -> None:
    imported = import_model(GRAPH.encode())
    assert imported.format == "qnn"
    assert imported.signature.inputs == (TensorSpec("x", "INT8", (1, 4)), TensorSpec("x_1", "INT8", (1, 4)))
    assert imported.signature.outputs == (TensorSpec("sum", "INT8", (1, 4)),)
    assert complete_text_of(imported.module) == GRAPH


def test_a_model_file_and_its_text_are_the_same_module() -> None:
    module = import_model((EXAMPLES / "digits_int8.tflite").read_bytes()).module
    text = complete_text_of(module)
    assert complete_text_of(import_model(text.encode()).module) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GRAPH.replace("qnn.add", "qnn.plus"), "line 6: the operator qnn.plus does not exist"),
        (GRAPH.replace("return %2", "return %5"), "line 7: %5 is not defined"),
        ("// qnn 1\n", "the text has no line `main`"),
    ],
)
def test_damaged_texts_name_the_line(text: str, message: str) -> None:
    with pytest.raises(MalformedModel, match=message):
        import_model(text.encode())


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(MalformedModel, match="utf-8"):
        import_model(b"// qnn 1\n\xff")


def test_a_graph_without_inputs_is_unsupported() -> None:
    text = '// qnn 1\nmain\n  %0 = abs(const<2xf32> [-1.0, 2.0]) : tensor<2xf32> loc("y")\n  return %0\n'
    with pytest.raises(Unsupported, match="no inputs"):
        import_model(text.encode())
