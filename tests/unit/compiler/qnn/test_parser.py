"""The complete text of a graph and its parser."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.importers.auto import import_model
from service.compiler.qnn import oracle, parser
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.parser import InvalidText, parse_module
from service.compiler.qnn.plain import PLAIN
from service.compiler.qnn.printer import complete_text_of, text_of
from service.compiler.qnn.type_parser import parse
from service.core.builds.numerics import LITERT_REFERENCE
from tests.support.examples import examples

EXAMPLES = Path(__file__).parents[4] / "examples"
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "qnn.md"
GRAPH = """\
!0 = !quant.uniform<i8:f32, 0.5:3>
!1 = !quant.uniform<i8:f32:0, {0.25,0.125}>
!2 = !quant.uniform<i32:f32:1, {0.125,0.0625}>
main
  %0: tensor<1x4xi8> loc("input")
  %1 = qnn.dense(%0, const<2x4xi8> [1, 2, 3, 4, -1, -2, -3, -4], const<2xi32> [10, -10]) \
{in_type = !0, weight_type = !1, accum_dtype = "int32"} : tensor<1x2xi32> loc("sums")
  %2 = qnn.requantize(%1) {in_type = !2, out_type = !0} : tensor<1x2xi8> loc("scaled")
  %3 = permute_dims(%2) {axes = [1, 0]} : tensor<2x1xi8> loc("turned \\"twice\\"")
  %4 = reshape(%3, shape<2>) : tensor<2xi8> loc("")
  return %4
"""


def test_a_text_written_by_hand_is_computed() -> None:
    module = parse_module(GRAPH)
    (output,) = oracle.run(module, get_mode(LITERT_REFERENCE), [np.array([[4, 5, 6, 7]], np.int8)])
    sums = np.array([1 * 1 + 2 * 2 + 3 * 3 + 4 * 4 + 10, -(1 * 1 + 2 * 2 + 3 * 3 + 4 * 4) - 10])
    expected = np.sign(sums) * np.floor(np.abs(sums * np.array([0.25, 0.125])) + 0.5) + 3
    assert output.tolist() == expected.tolist()
    assert complete_text_of(module) == "// qnn 1\n" + GRAPH.replace('loc("")', 'loc("gv")')


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.tflite")), ids=lambda file: file.name)
def test_a_model_survives_the_text(file: Path) -> None:
    module = import_model(file.read_bytes()).module
    text = complete_text_of(module)
    parsed = parse_module(text)
    assert tvm_ffi.structural_equal(parsed, module)
    assert complete_text_of(parsed) == text
    assert text_of(parsed) == text_of(module)


def test_equal_constants_are_printed_once_and_shared() -> None:
    values = ", ".join(str(value % 100) for value in range(32))
    long = f"const<4x8xi8> [{values}]"
    text = f'main\n  %0: tensor<4x8xi8> loc("x")\n  %1 = add(%0, {long}) : tensor<4x8xi8> loc("a")\n'
    text += f'  %2 = add(%1, {long}) : tensor<4x8xi8> loc("b")\n  return %2\n'
    printed = complete_text_of(parse_module(text))
    assert printed.startswith("// qnn 1\nmain\n")
    assert re.findall(r"#\d+", printed) == ["#0", "#0", "#0"]
    assert complete_text_of(parse_module(printed)) == printed


def test_every_operator_that_the_oracle_evaluates_can_be_written() -> None:
    assert {name.removeprefix("relax.") for name in PLAIN} <= set(parser._PLAIN)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("qnn.dense", "qnn.dance", "line 6: the operator qnn.dance does not exist"),
        ("permute_dims(", "call_packed(", "line 8: the operator call_packed does not exist"),
        ("return %4", "return %7", "line 10: %7 is not defined"),
        ("%2 = qnn", "%1 = qnn", "line 7: %1 is defined twice"),
        ("requantize(%1)", "requantize(%9)", "line 7: %9 is not defined"),
        ("in_type = !2", "in_type = !7", "line 7: the type !7 is not defined"),
        ("axes = [1, 0]", "axis = [1, 0]", "line 8: permute_dims has other attributes"),
        ("tensor<2x1xi8>", "tensor<1x2xi8>", r"line 8: the type is tensor<2x1xi8>, not tensor<1x2xi8>"),
        ("[10, -10]", "[10]", r"line 6: const<2xi32> has 1 values, not 2"),
        ("[10, -10]", "[10, 5000000000]", "line 6: a value does not fit int32"),
        ("[10, -10]", "#4", "line 6: the constant #4 is not defined"),
        ("shape<2>", "shape<-2>", "line 9: '-2' is not a shape"),
        ("0.5:3>", "-0.5:3>", "line 1: "),
        ("main\n", "", "the text has no line `main`"),
        ("  return %4\n", "", "the graph has no line `return`"),
        ("reshape(%3,", "reshape(", "line 9: reshape has 2 operands, not 1"),
        ("tensor<1x4xi8> loc", "tensor<1x4xi9> loc", "line 5: 'i9' is not the type of an element"),
        ("{in_type = !2", "{in_type !2", "line 7: expected '=', not '!2'"),
    ],
)
def test_errors_name_the_line(before: str, after: str, message: str) -> None:
    assert before in GRAPH
    with pytest.raises(InvalidText, match=message):
        parse_module(GRAPH.replace(before, after, 1))


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_damaged_texts_are_refused_or_parsed(data: st.DataObject) -> None:
    lines = GRAPH.splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    line = lines[index]
    at = data.draw(st.integers(0, max(len(line) - 1, 0)))
    piece = data.draw(st.sampled_from(["", "%0", "(", "]", ", ", "-1", '"', "!0", "{", "99999999999", "nan", " = "]))
    lines[index] = line[:at] + piece + line[at + data.draw(st.integers(0, 3)) :]
    with suppress(InvalidText):
        assert isinstance(parse_module("\n".join(lines)), tvm.IRModule)


def test_the_example_of_the_reference_is_a_graph() -> None:
    (example,) = re.findall(r"```qnn\n(.*?)```", PAGE.read_text(), re.DOTALL)
    module = parse_module(example)
    assert complete_text_of(module).replace("const<2xi32> [10, -10]", "const<2xi32> #0") == example.partition("#0 =")[0]
    (output,) = oracle.run(module, get_mode(LITERT_REFERENCE), [np.array([[4, 5, 6, 7]], np.uint8)])
    assert output.tolist() == [0, -8]  # (30 + 10) * 0.125 - 5, and (-30 - 10) * 0.0625 - 5: halves away from zero


def test_the_types_of_the_reference_are_parsed() -> None:
    types = re.findall(r"^\| `(!quant\..*?)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(types) == 6
    assert [str(parse(text)) for text in types] == types


def test_the_reference_lists_the_operators_of_relax() -> None:
    (listed,) = re.findall(r"without a prefix: (.*?)\.\n", PAGE.read_text(), re.DOTALL)
    assert re.findall(r"`(.*?)`", listed) == sorted(parser._PLAIN)
