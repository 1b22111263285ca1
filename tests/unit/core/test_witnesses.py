"""What a numerics report says of its witnesses."""

from __future__ import annotations

import pytest

from service.core.witnesses import CANONICAL, Comparison, Statement, Witness, float_share, not_checked, percent, report

KINDS = ["minimum", "random", "maximum", "random"]
ALL = (0, 1, 2, 3)
EQUAL = Comparison(ALL, 40, 40, 0.0, 0)
LITERT = Witness("LiteRT", "2.3.0", {"experimental_op_resolver_type": "BUILTIN_REF"})
OWN = Statement(CANONICAL, EQUAL)


def test_an_equal_witness_is_named_with_its_version_options_and_inputs() -> None:
    found = report([OWN, Statement(LITERT, EQUAL)], [], KINDS, "")
    title = "LiteRT 2.3.0 (experimental_op_resolver_type=BUILTIN_REF)"
    assert found["outcome"] == "equal"
    assert found["summary"] == f"checked against {title}: all 40 values from 4 inputs are equal"
    assert found["reference"] == title
    assert found["inputs"] == {"count": 4, "kinds": {"minimum": 1, "random": 2, "maximum": 1}}


def test_a_witness_that_differs_does_not_stop_what_equals_the_canonical_form() -> None:
    found = report([OWN, Statement(LITERT, Comparison(ALL, 40, 5, 7.0, 7))], [], KINDS, "")
    assert (found["verified"], found["outcome"]) == (True, "different")
    assert found["summary"].endswith("35 of 40 values from 4 inputs differ (87.5 %), by at most 7 steps")


def test_a_witness_that_was_not_there_is_no_reference() -> None:
    found = report([OWN, Statement(LITERT, reason="is not installed here")], [], KINDS, "")
    assert (found["verified"], found["outcome"], found["reference"]) == (True, "own_only", None)
    assert found["summary"] == (
        "checked against Octet's own canonical form only: all 40 values from 4 inputs are equal; "
        "LiteRT is not installed here"
    )
    assert found["witnesses"][1]["ran"] is False


def test_where_no_runtime_defines_the_mode_the_summary_says_so() -> None:
    found = report([OWN], [], KINDS, "no runtime can be asked that defines mxnet-onednn")
    assert found["outcome"] == "own_only"
    assert found["summary"].endswith("; no runtime can be asked that defines mxnet-onednn")


def test_what_differs_from_the_canonical_form_is_not_verified() -> None:
    own = Statement(CANONICAL, Comparison(ALL, 40, 39, 1.0, 1))
    assert report([own, Statement(LITERT, EQUAL)], [], KINDS, "")["verified"] is False


def test_inputs_that_a_witness_refused_are_not_counted_as_compared() -> None:
    some = Statement(LITERT, Comparison((1, 3), 20, 20, 0.0, 0), refused={0: "index out of range", 2: "the same"})
    found = report([OWN, some], [], KINDS, "")
    _, entry = found["witnesses"]
    assert (entry["inputs"], entry["kinds"]) == (2, {"random": 2})
    assert entry["refused"] == [
        {"kind": "minimum", "message": "index out of range"},
        {"kind": "maximum", "message": "the same"},
    ]
    assert entry["text"] == "all 20 values from 2 inputs are equal; it refused 2 other inputs"
    assert found["summary"].endswith("it refused 2 other inputs: index out of range")


def test_another_session_is_told_apart_and_decides_nothing() -> None:
    session = Witness("ONNX Runtime", "1.31.1", {}, "a default session")
    differing = Statement(session, Comparison(ALL, 40, 39, 0.25, None))
    found = report([OWN, Statement(LITERT, EQUAL)], [differing], KINDS, "")
    assert found["outcome"] == "equal"
    (entry,) = found["other_sessions"]
    assert (entry["note"], entry["largest_steps"]) == ("a default session", None)
    assert entry["text"] == "1 of 40 values from 4 inputs differ (2.5 %), by at most 0.25"


def test_a_known_departure_is_told_beside_what_differs() -> None:
    differing = Statement(LITERT, Comparison(ALL, 40, 39, 1.0, 1), departure="it saturates in 1 layer")
    found = report([OWN, differing], [], KINDS, "")
    assert found["summary"].endswith("differ (2.5 %), by at most 1 step; it saturates in 1 layer")
    assert found["witnesses"][1]["departure"] == "it saturates in 1 layer"


def test_a_known_departure_explains_nothing_where_all_is_equal() -> None:
    found = report([OWN, Statement(LITERT, EQUAL, departure="it saturates in 1 layer")], [], KINDS, "")
    assert found["summary"].endswith("all 40 values from 4 inputs are equal")


def test_outputs_of_another_shape_differ_by_no_number() -> None:
    text = Statement(LITERT, Comparison(ALL, 40, 0, None, 0)).text
    assert text == "40 of 40 values from 4 inputs differ (100 %), in shape or type, or by no finite number"


def test_what_is_not_run_is_compared_with_nothing() -> None:
    found = not_checked("this host lacks avx512_vnni")
    assert (found["verified"], found["outcome"], found["reference"]) == (False, "not_checked", None)
    assert found["summary"] == "not checked: this host lacks avx512_vnni"


@pytest.mark.parametrize(("part", "whole", "expected"), [(3, 3, 100.0), (0, 0, 100.0), (10**9 - 1, 10**9, 99.99)])
def test_percentages_are_100_of_the_whole_alone(part: int, whole: int, expected: float) -> None:
    assert percent(part, whole) == expected


def test_float_operators_are_named_with_their_share_and_the_ends_of_the_model_are_not() -> None:
    floating = [
        {"op": "softmax", "macs": 0, "reason": "its input is real"},
        {"op": "gelu", "macs": 25, "reason": "its accumulators are float32"},
        {"op": "quantize", "macs": 0, "reason": "an end", "boundary": True},
    ]
    found = float_share({"macs": 100, "integer_macs": 75, "floating": floating})
    assert [operator["op"] for operator in found["operators"]] == ["softmax", "gelu"]
    assert found["text"] == "2 operators in float, 25 % of the multiply-accumulates"
