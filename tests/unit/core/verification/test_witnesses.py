"""Tests of the part of a numerics report about its witnesses."""

from __future__ import annotations

import pytest

from service.core.verification.agreement import Comparison, Deviation, OutputComparison
from service.core.verification.witnesses import CANONICAL, Statement, Witness, float_share, not_checked, percent, report

KINDS = ["minimum", "random", "maximum", "random"]
ALL = (0, 1, 2, 3)


def integers(equal: int, steps: float | None, values: int = 40, inputs: tuple[int, ...] = ALL) -> Comparison:
    return Comparison(inputs, (OutputComparison(values, equal, False, steps),))


def real(equal: int, largest: float | None, span: float) -> Comparison:
    return Comparison(ALL, (OutputComparison(40, equal, True, largest, span),))


EQUAL = integers(40, 0.0)
SATURATES = Deviation("conv2d", "it saturates", None)
LITERT = Witness("LiteRT", "2.3.0", {"experimental_op_resolver_type": "BUILTIN_REF"})
OWN = Statement(CANONICAL, EQUAL)


def test_an_equal_witness_is_named_with_its_version_options_and_inputs() -> None:
    found = report([OWN, Statement(LITERT, EQUAL)], [], KINDS, "")
    title = "LiteRT 2.3.0 (experimental_op_resolver_type=BUILTIN_REF)"
    assert found["outcome"] == "equal"
    assert found["summary"] == f"checked against {title}: all 40 values from 4 inputs are equal"
    assert found["reference"] == title
    assert found["inputs"] == {"count": 4, "kinds": {"minimum": 1, "random": 2, "maximum": 1}}


def test_a_build_that_differs_from_its_reference_is_exact_and_not_verified() -> None:
    found = report([OWN, Statement(LITERT, integers(5, 7.0))], [], KINDS, "")
    assert (found["exact"], found["verified"], found["outcome"]) == (True, False, "different")
    assert "35 of 40 values from 4 inputs differ (87.5 %), by at most 7 steps" in found["summary"]
    assert found["summary"].endswith("; the mode documents no such difference")


def test_an_accepted_difference_is_recorded_and_still_not_verified() -> None:
    found = report([OWN, Statement(LITERT, integers(5, 7.0))], [], KINDS, "", accepts=True)
    assert (found["verified"], found["accepted"], found["outcome"]) == (False, True, "different")
    assert found["summary"].endswith("; the differences were accepted")


def test_nothing_is_accepted_if_nothing_differs() -> None:
    found = report([OWN, Statement(LITERT, EQUAL)], [], KINDS, "", accepts=True)
    assert (found["verified"], "accepted" in found) == (True, False)


def test_a_difference_from_the_canonical_form_cannot_be_accepted() -> None:
    own = Statement(CANONICAL, integers(39, 1.0))
    assert "accepted" not in report([own, Statement(LITERT, integers(5, 7.0))], [], KINDS, "", accepts=True)


def test_a_witness_that_did_not_run_is_not_the_reference() -> None:
    found = report([OWN, Statement(LITERT, reason="is not installed here")], [], KINDS, "")
    assert (found["verified"], found["outcome"], found["reference"]) == (True, "own_only", None)
    assert found["summary"] == (
        "checked against Octet's own canonical form only: all 40 values from 4 inputs are equal; "
        "LiteRT is not installed here"
    )
    assert found["witnesses"][1]["ran"] is False


def test_the_summary_mentions_a_mode_without_a_runtime() -> None:
    found = report([OWN], [], KINDS, "no runtime can be asked that defines mxnet-onednn")
    assert found["outcome"] == "own_only"
    assert found["summary"].endswith("; no runtime can be asked that defines mxnet-onednn")


def test_a_build_that_differs_from_the_canonical_form_is_not_verified() -> None:
    own = Statement(CANONICAL, integers(39, 1.0))
    assert report([own, Statement(LITERT, EQUAL)], [], KINDS, "")["verified"] is False


def test_inputs_that_a_witness_refused_are_not_counted_as_compared() -> None:
    some = Statement(LITERT, integers(20, 0.0, 20, (1, 3)), refused={0: "index out of range", 2: "the same"})
    found = report([OWN, some], [], KINDS, "")
    _, entry = found["witnesses"]
    assert (entry["inputs"], entry["kinds"]) == (2, {"random": 2})
    assert entry["refused"] == [
        {"kind": "minimum", "message": "index out of range"},
        {"kind": "maximum", "message": "the same"},
    ]
    assert entry["text"] == "all 20 values from 2 inputs are equal; it refused 2 other inputs"
    assert found["summary"].endswith("it refused 2 other inputs: index out of range")


def test_another_session_is_listed_separately_and_decides_nothing() -> None:
    session = Witness("ONNX Runtime", "1.31.1", {}, "a default session")
    differing = Statement(session, real(39, 0.25, 0.5))
    found = report([OWN, Statement(LITERT, EQUAL)], [differing], KINDS, "")
    assert found["outcome"] == "equal"
    (entry,) = found["other_sessions"]
    assert (entry["note"], entry["largest_steps"]) == ("a default session", None)
    assert entry["text"] == "1 of 40 values from 4 inputs differ (2.5 %), by at most 0.5 of the output's range"


def test_a_documented_deviation_is_named_with_the_differences() -> None:
    differing = Statement(LITERT, integers(39, 1.0), deviations=[SATURATES])
    found = report([OWN, differing], [], KINDS, "")
    assert (found["verified"], found["outcome"]) == (True, "documented")
    assert found["summary"].endswith(
        "differ (2.5 %), by at most 1 step; conv2d (1 layer, by no bounded number of steps): it saturates"
    )
    (listed,) = found["deviations"]
    assert (listed["operator"], listed["bound_steps"], listed["layers"]) == ("conv2d", None, 1)


def test_a_documented_deviation_is_not_mentioned_if_all_values_are_equal() -> None:
    found = report([OWN, Statement(LITERT, EQUAL, deviations=[SATURATES])], [], KINDS, "")
    assert found["summary"].endswith("all 40 values from 4 inputs are equal")


def test_real_values_that_agree_within_their_range_are_verified() -> None:
    found = report([OWN, Statement(LITERT, real(7, 1.2e-5, 10.0))], [], KINDS, "")
    assert (found["verified"], found["outcome"]) == (True, "documented")
    assert found["witnesses"][1]["largest_relative"] == pytest.approx(1.2e-6)
    line = "all 40 values from 4 inputs agree to 1.2e-06 of the output's range, 17.5 % of them bit for bit"
    assert line in found["summary"]


def test_outputs_of_another_shape_have_no_largest_difference() -> None:
    text = Statement(LITERT, integers(0, None)).text
    assert text == "40 of 40 values from 4 inputs differ (100 %), in shape or type"


def test_a_share_is_rounded_down() -> None:
    text = Statement(LITERT, integers(1, 1.0, values=10**6)).text
    assert "999,999 of 1,000,000 values from 4 inputs differ (99.99 %)" in text
    assert "differ (less than 0.01 %)" in Statement(LITERT, integers(10**6 - 1, 1.0, values=10**6)).text


def test_an_artifact_that_was_not_run_is_not_checked() -> None:
    found = not_checked("this host lacks avx512_vnni")
    assert (found["verified"], found["outcome"], found["reference"]) == (False, "not_checked", None)
    assert found["summary"] == "not checked: this host lacks avx512_vnni"


@pytest.mark.parametrize(("part", "whole", "expected"), [(3, 3, 100.0), (0, 0, 100.0), (10**9 - 1, 10**9, 99.99)])
def test_a_percentage_is_100_only_for_the_whole(part: int, whole: int, expected: float) -> None:
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


def test_the_summary_names_the_session_that_octet_follows() -> None:
    optimized = Statement(Witness("ONNX Runtime", "1.31.1", {"level": "all"}), integers(5, 7.0))
    default = Statement(Witness("ONNX Runtime", "1.31.1", {}, "a default session"), integers(5, 7.0))
    plain = Statement(Witness("ONNX Runtime", "1.31.1", {"level": "none"}, "without graph optimizations"), EQUAL)
    found = report([OWN, optimized], [default, plain], KINDS, "")
    assert (found["outcome"], found["verified"], found["follows"]) == ("documented", True, plain.witness.title)
    assert "35 of 40 values from 4 inputs differ" in found["summary"]
    assert found["summary"].endswith(
        "; equality with one session is enough; sessions of ONNX Runtime disagree, and Octet follows the session "
        "without graph optimizations: "
        "all 40 values from 4 inputs are equal"
    )


def test_one_session_is_enough_for_a_model_that_is_not_quantized() -> None:
    """LiteRT's reference kernels and its default delegate add in different orders and disagree themselves."""
    reference = Statement(LITERT, real(3, 0.02, 10.0))
    delegate = Statement(Witness("LiteRT", "2.3.0", {}, "the default delegate"), real(7, 1.2e-5, 10.0))
    found = report([OWN, reference], [delegate], KINDS, "", is_real=True)
    assert (found["outcome"], found["verified"], found["follows"]) == ("documented", True, delegate.witness.title)
    assert (
        "; the model is not quantized, so agreement with one session is enough; sessions of LiteRT"
        in (found["summary"])
    )
    assert report([OWN, reference], [delegate], KINDS, "")["outcome"] == "different"
    assert report([OWN, reference], [reference], KINDS, "", is_real=True)["outcome"] == "different"


def test_no_session_is_followed_if_the_deciding_one_is_equal() -> None:
    plain = Statement(Witness("ONNX Runtime", "1.31.1", {}, "without graph optimizations"), EQUAL)
    assert "follows" not in report([OWN, Statement(LITERT, EQUAL)], [plain], KINDS, "")
