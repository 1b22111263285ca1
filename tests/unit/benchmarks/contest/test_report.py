import pytest

from benchmarks.contest.figures import Results
from benchmarks.contest.records import Entry, Model, Slice
from benchmarks.contest.report import CONTEST, rendered, shares
from benchmarks.models.catalog import ZOO
from tests.unit.benchmarks.contest.recorded import results_of, turn


def render(results: Results, part: str = CONTEST) -> str:
    return rendered(results)[part]


def row(text: str, heading: str, first_cell: str) -> list[str]:
    """Returns the cells of the row that begins with `first_cell`, in the section with that heading."""
    section = text.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    (found,) = [line for line in section.splitlines() if line.startswith(f"| {first_cell} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


MEDIANS_MS = {
    ("resnet50", "peak", 1): 1.0,
    ("resnet50", "octet-xnnpack", 1): 1.2,
    ("resnet50", "octet-reference", 1): 1.26,
    ("resnet50", "litert", 1): 1.3,
    ("resnet50", "openvino", 1): 1.26,
    ("resnet50", "openvino-bf16", 1): 1.25,
    ("resnet50", "openvino-fp32", 1): 6.0,
}


def test_octets_row_shows_the_share_of_the_peak_and_the_fastest_peer() -> None:
    text = render(results_of(MEDIANS_MS))
    cells = row(text, "Octet (xnnpack), 1 thread pinned to core 0", "Resnet50")
    limit, octet, fastest, _, percent, peer, peer_ms, times, of_one_thread = cells[1:]
    assert (limit, octet, fastest) == ("0.900", "**1.20**", "1.08")
    assert (percent, peer, peer_ms) == ("**75.0 %**", "OpenVINO (ONNX, bf16)", "1.25")
    assert (times, of_one_thread) == ("**1.04 ×**", "1.00")  # noqa: RUF001


def test_the_numerics_modes_are_compared() -> None:
    text = render(results_of(MEDIANS_MS))
    assert row(text, "What the numerics mode costs", "Resnet50")[1:] == ["1", "1.20", "1.26", "+5.0 %"]


def test_float32_is_compared_with_float32() -> None:
    cells = row(render(results_of(MEDIANS_MS)), "Against float32 of the same model", "Resnet50")
    assert cells[1:] == ["1", "6.00", "1.20", "1.26", "**5.00 ×**"]  # noqa: RUF001


def test_int8_is_compared_with_float32_by_the_same_compiler() -> None:
    own = {("resnet50", "octet-fp32", 1): 3.6, ("kws", "octet-fp32", 1): 0.1, ("kws", "octet-reference", 1): 0.025}
    loops = {("peak", "vpdpbusd zmm", 1): 1.0, ("peak", "vfmadd zmm", 1): 3.9}
    heading, text = "int8 against float32 by the same compiler", render(results_of(MEDIANS_MS | own | loops))
    assert row(text, heading, "Resnet50")[1:] == ["1", "3.60", "1.20", "**3.00 ×**"]  # noqa: RUF001
    assert row(text, heading, "geometric mean")[1:] == ["1", "", "", "**3.46 ×**"]  # noqa: RUF001
    assert row(text, heading, "the instructions' peaks")[1:] == ["1", "", "", "3.90 ×"]  # noqa: RUF001


def test_the_gain_of_a_second_thread_is_shown() -> None:
    medians_ms = {("kws_ref_model", "octet-xnnpack", 1): 0.02, ("kws_ref_model", "octet-xnnpack", 2): 0.025}
    text = render(results_of(medians_ms))
    assert row(text, "Octet (xnnpack), 2 threads pinned to cores 0, 1", "Kws_Ref_Model")[-1] == "1.25"


def test_the_peak_is_shown_in_instructions_per_cycle_too() -> None:
    results = results_of({("peak", "vpdpbusd zmm", 1): 1 / 230.4}, macs=1_000_000)
    cells = row(render(results), "The peak", "vpdpbusd zmm")
    assert cells[1:] == ["1", "256.0", "1.00"]  # 256 GMAC/s, 64 MACs per instruction, 4 GHz


def test_a_contestant_that_failed_is_listed_once() -> None:
    results = results_of(MEDIANS_MS)
    for threads in (1, 2):
        results.add(Entry("resnet50", "torch", threads, [0], {}, "no such file\nand a trace"))
    assert render(results).endswith(
        "### Contestants that could not take part\n\n- PyTorch (FX) on resnet50: no such file"
    )


def zoo_results(*, made: bool) -> Results:
    results = results_of(MEDIANS_MS)
    results.add(Model("bert.ort-static", "BERT, ort-static", "" if made else "not made", 1, 0, ZOO))
    if made:
        about = {"time": {"integer": 0.5, "float": 0.0, "layout": 0.125, "generated": 0.375}}
        operators = {"generated": {"exp": 0.25, "sum": 0.125}}
        results.add(Entry("bert.ort-static", "octet-onnx", 1, [0], about | operators))
        results.add(Slice("bert.ort-static", "octet-onnx", 1, 0, 0, turn(2.0)))
        results.add(Slice("bert.ort-static", "onnxruntime", 1, 0, 0, turn(3.0)))
    return results


def test_a_network_of_the_zoo_shows_its_time_by_type_of_code() -> None:
    text = render(zoo_results(made=True), ZOO)
    heading = "The zoo, 1 thread pinned to core 0"
    cells = row(text, heading, "BERT, ort-static")
    assert cells[4:] == ["3.00", "", "", "**1.50 ×**", "50%", "0%", "12%", "38%", "exp 25%, sum 12%"]  # noqa: RUF001
    assert "Faster by 1.50 in the geometric mean, 1.50 at least." in text
    assert "BERT" not in text.partition(f"### {heading}")[0]  # BERT is only in the table of the zoo


@pytest.mark.parametrize("error", ["", "unsupported: no such operator\nand a trace"])
def test_a_network_of_the_zoo_without_times_shows_the_reason(error: str) -> None:
    results = zoo_results(made=False)
    if error:
        results.add(Entry("bert.ort-static", "octet-onnx", 1, [0], {}, error))
    cells = row(render(results, ZOO), "The zoo, 1 thread pinned to core 0", "BERT, ort-static")
    assert cells[1:] == [""] * 11 + [error.partition("\n")[0] or "not made"]


def test_the_plot_shows_the_fastest_settings_of_each_framework() -> None:
    panel = shares(results_of(MEDIANS_MS))["1 thread pinned to core 0"]["Resnet50"]
    assert set(panel) == {"Octet (xnnpack)", "Octet (litert-reference)", "LiteRT", "OpenVINO"}
    assert round(panel["OpenVINO"], 1) == 72.0


def test_a_run_replaces_only_the_sections_of_its_models() -> None:
    assert set(rendered(results_of(MEDIANS_MS))) == {CONTEST}
    parts = rendered(zoo_results(made=True))
    assert set(parts) == {CONTEST, ZOO}
    assert "### The zoo" in parts[ZOO]
    assert "### The zoo" not in parts[CONTEST]


def test_a_failure_is_listed_in_the_section_of_its_model() -> None:
    results = zoo_results(made=True)
    results.add(Entry("bert.ort-static", "openvino", 1, [0], {}, "no such operator"))
    parts = rendered(results)
    assert "no such operator" in parts[ZOO]
    assert "no such operator" not in parts[CONTEST]
