"""Tests of combining a coverage report and a profile: the times of layers, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from service.core.artifacts.explanation import Call, build_explanation
from service.core.errors import Unsupported


def layer(name: str, kernel: str, macs: int = 0, **facts: Any) -> dict[str, Any]:
    symbol = f"octet_{kernel}_{name[0]}"
    return {"layer": name, "operators": "conv2d", "kernel": kernel, "symbol": symbol, "macs": macs, **facts}


def plain(name: str, index: int, macs: int = 0) -> dict[str, Any]:
    return {"layer": name, "operators": "softmax", "reason": "no kernel", "macs": macs, "place": index}


def coverage(layers: Sequence[dict[str, Any]], operators: Sequence[dict[str, Any]] = (), macs: int = 0) -> Any:
    kernels = {"layers": layers, "plain": operators, "declined": {}, "reorders": 0}
    return {"macs": macs, "integer_percent": 100.0, "kernels": kernels}


def profile(*calls: tuple[str, float], peak: float | None = 1000.0) -> dict[str, Any]:
    return {"peak_macs_per_s": peak, "calls": [{"symbol": symbol, "seconds": seconds} for symbol, seconds in calls]}


def test_each_kernel_gets_its_own_time_in_order() -> None:
    layers = [layer("a1", "conv", 10), layer("a2", "conv", 20), layer("b", "conv", 30)]
    taken = profile(("octet_conv_a", 1.0), ("octet_conv_a", 2.0), ("octet_conv_b", 3.0))
    explanation = build_explanation(coverage(layers), taken)
    assert [(each.name, each.seconds, each.macs) for each in explanation.layers] == [
        ("a1", 1.0, 10),
        ("a2", 2.0, 20),
        ("b", 3.0, 30),
    ]


def test_generated_code_belongs_to_the_operators_at_its_place() -> None:
    report = coverage([layer("a", "conv"), layer("b", "conv")], [plain("p", 1), plain("q", 1), plain("r", 2)])
    taken = profile(("octet_conv_a", 1.0), ("exp", 2.0), ("sum", 3.0), ("octet_conv_b", 4.0), ("divide", 5.0))
    first, middle, second, last = build_explanation(report, taken).layers
    assert (first.name, second.name) == ("a", "b")
    assert middle.name == "p, q"
    assert middle.kernel is None
    assert middle.calls == (Call("exp", 2.0), Call("sum", 3.0))
    assert middle.reasons == {"p": "no kernel", "q": "no kernel"}
    assert (last.name, last.seconds) == ("r", 5.0)


def test_generated_code_without_operators_is_a_layer_without_a_name() -> None:
    *_, last = build_explanation(
        coverage([layer("a", "conv")]), profile(("octet_conv_a", 1.0), ("reshape", 2.0))
    ).layers
    assert (last.name, last.kernel, last.seconds) == ("", None, 2.0)


def test_a_kernel_without_a_call_takes_no_time() -> None:
    layers = [layer("dead", "conv"), layer("a", "conv")]
    dead, alive = build_explanation(coverage(layers), profile(("octet_conv_a", 2.0))).layers
    assert (dead.seconds, dead.calls) == (0, ())
    assert alive.seconds == 2.0


def test_a_target_without_kernels_has_one_layer() -> None:
    (only,) = build_explanation(coverage([], macs=500), profile(("conv", 1.0), ("pool", 1.0), peak=None)).layers
    assert (only.macs, only.seconds, len(only.calls)) == (500, 2.0, 2)


def test_rates_and_totals_are_consistent() -> None:
    report = coverage([layer("a", "conv", 100), layer("b", "conv", 200), layer("c", "pool")], [plain("d", 3, 50)])
    taken = profile(("octet_conv_a", 1.0), ("octet_conv_b", 1.0), ("octet_pool_c", 1.0), ("dense", 1.0))
    document = build_explanation(report, taken).to_json()
    conv, pool, none = (document["families"][family] for family in ("conv", "pool", "none"))
    assert conv == {"layers": 2, "macs": 300, "seconds": 2.0, "macs_per_s": 150.0, "peak_percent": 15.0}
    assert pool == {"layers": 1, "macs": 0, "seconds": 1.0, "macs_per_s": None, "peak_percent": None}
    assert none["macs"] == 50
    assert document["macs"] == sum(each["macs"] for each in document["layers"]) == 350
    assert document["seconds"] == 4.0
    assert document["peak_percent"] == pytest.approx(100 * 350 / 4.0 / 1000)
    assert [each["peak_percent"] for each in document["layers"]] == [10.0, 20.0, None, 5.0]


def test_time_is_divided_by_type_of_code() -> None:
    layers = [layer("a", "conv"), layer("b", "rows", kind="float"), layer("c", "pack", kind="layout")]
    report = coverage(layers, [plain("d", 3)])
    calls = [("octet_conv_a", 4.0), ("octet_rows_b", 3.0), ("octet_pack_c", 1.0), ("exp", 2.0)]
    explanation = build_explanation(report, profile(*calls))
    assert explanation.shares() == {"integer": 0.4, "float": 0.3, "layout": 0.1, "generated": 0.2}
    assert build_explanation(report).shares() == {}


def test_generated_code_is_listed_by_operator_the_longest_first() -> None:
    calls = [
        ("octet_plain_exp", 1.0),
        ("octet_conv_a", 4.0),
        ("octet_plain_fused_add_sum2", 2.0),
        ("octet_plain_exp7", 2.0),
        ("octet_plain_exp_0123456789abcdef", 1.0),  # the name of a kernel for a GPU
    ]
    explanation = build_explanation(coverage([layer("a", "conv")]), profile(*calls))
    assert list(explanation.generated().items()) == [("exp", 0.4), ("add_sum", 0.2)]


@pytest.mark.parametrize(
    ("generated_s", "warning"),
    [(1.0, ""), (3.0, "generated code takes 25 % of the time: exp 17 %, sum 8 %")],
)
def test_much_generated_code_causes_a_warning(generated_s: float, warning: str) -> None:
    calls = [("octet_conv_a", 9.0), ("octet_plain_exp", generated_s * 2 / 3), ("octet_plain_sum", generated_s / 3)]
    explanation = build_explanation(coverage([layer("a", "conv")]), profile(*calls))
    assert explanation.warning == warning


def test_totals_by_type_of_code_add_up() -> None:
    layers = [layer("a", "conv", 300), layer("b", "rows", kind="float")]
    taken = profile(("octet_conv_a", 1.0), ("octet_rows_b", 2.0), ("exp", 3.0))
    kinds = build_explanation(coverage(layers, [plain("c", 2, 100)]), taken).to_json()["kinds"]
    assert {kind: (total["layers"], total["macs"], total["seconds"]) for kind, total in kinds.items()} == {
        "integer": (1, 300, 1.0),
        "float": (1, 0, 2.0),
        "generated": (1, 100, 3.0),
    }


def test_without_a_peak_there_are_rates_and_no_percentages() -> None:
    document = build_explanation(
        coverage([layer("a", "conv", 100)]), profile(("octet_conv_a", 1.0), peak=None)
    ).to_json()
    assert (document["macs_per_s"], document["peak_percent"]) == (100.0, None)


def test_without_a_profile_nothing_is_measured() -> None:
    document = build_explanation(coverage([layer("a", "conv", 100)])).to_json()
    assert document["profile"] is None
    assert (document["macs"], document["seconds"], document["macs_per_s"]) == (100, None, None)


def test_facts_are_the_other_members_of_a_layer() -> None:
    (only,) = build_explanation(coverage([layer("a", "conv", 1, tile="1x14", excess=0)])).layers
    assert only.facts == {"tile": "1x14", "excess": 0}


@pytest.mark.parametrize("report", [{"macs": 1}, {"kernels": {"layers": []}}])
def test_a_report_of_an_older_version_is_refused(report: Any) -> None:
    with pytest.raises(Unsupported) as caught:
        build_explanation(report, profile())
    assert "compile" in str(caught.value.hint)
