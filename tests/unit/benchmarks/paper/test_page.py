from typing import Any

from benchmarks.harness.kept import tables_of
from benchmarks.harness.tables import TIMES
from benchmarks.paper import recorded, store
from benchmarks.paper.__main__ import PAGE
from benchmarks.paper.page import page
from tests.unit.benchmarks.paper.samples import DAY, measurement, time

_ACCURACY: dict[str, Any] = {
    **{"inputs": 100, "top1": 0.81, "low": 0.72222, "high": 0.875, "top5": 0.95},
    **{"framework_top1": 0.8, "framework_top5": 0.94, "same_top1": 0.99, "equal_outputs": 0.985},
}


def row_of(text: str, heading: str, first_cell: str) -> dict[str, str]:
    """Returns the cells of a row by column."""
    tables = (table for table in tables_of(text) if heading in table.heading)
    return next(table.cells(row) for table in tables for row in table.rows if row[0] == first_cell)


def test_an_accuracy_has_its_interval_and_the_frameworks_value() -> None:
    text = page([measurement("accuracy", "net", "LiteRT", "xnnpack", **_ACCURACY)])
    row = row_of(text, "Table II", "net")
    assert (row["framework's top-1 / top-5"], row["Octet's"]) == ("80 / 94 %", "81 / 95 %")
    assert row["95 % interval of top-1"] == "72.2 to 87.5 %"
    assert (row["same top-1"], row["equal outputs"]) == ("99 %", "98.5 %")
    assert row["date"] == DAY


def test_the_third_authors_accuracies_are_beside_our_agreement() -> None:
    text = page([measurement("agreement", "resnet18", "PyTorch", "torch-x86", equal=100.0, difference=0.0)])
    row = row_of(text, "Table II", "resnet18")
    assert (row["equal outputs"], row["PyTorch's top-1 / top-5"]) == ("100 %", "68.87 / 88.3 %")
    assert row_of(text, "Table II", "resnet50")["equal outputs"] == "not measured yet"
    assert row_of(text, "Table II", "googlenet")["equal outputs"] == "not measured: no such network is here"


def test_int8_beside_float32_is_a_ratio_by_network_and_a_mean() -> None:
    times = [time("resnet50", "octet-fp32", 8.0), time("resnet50", "octet-onnx", 2.0)]
    times += [time("resnet18", "octet-fp32", 9.0), time("resnet18", "octet-onnx", 1.0)]
    text = page(times)
    assert row_of(text, "Figures 4 and 5", "ResNet-50 int8")["int8 is faster by"] == f"4.00 {TIMES}"
    mean = row_of(text, "Figures 4 and 5", "Intel Xeon, Cascade Lake (AVX-512 VNNI)")
    assert (mean["the paper's mean"], mean["Octet's"]) == (f"2.35 {TIMES}", f"6.00 {TIMES}")
    assert row_of(text, "Table 2: latency", "ResNet-50")["Octet's int8 is faster by"] == f"4.00 {TIMES}"


def test_throughput_counts_the_samples_of_a_batch() -> None:
    times = [time("resnet50-batch16", "octet-fp32", 800.0), time("resnet50-batch16", "octet-onnx", 160.0)]
    row = row_of(page(times), "Table 1: throughput", "ResNet-50")
    assert (row["Octet float32"], row["Octet int8"]) == ("20", "100")


def test_the_fastest_framework_is_compared() -> None:
    times = [
        time("resnet50_v1", "octet-mxnet", 2.0),
        time("resnet50_v1", "mxnet", 5.0),
        time("resnet50_v1", "torch", 3.0),
    ]
    row = row_of(page(times), "Figures 7 to 9", "ResNet-50 v1 int8 (MXNet)")
    assert (row["Octet ms"], row["MXNet ms"], row["LiteRT ms"]) == ("2.00", "5.00", "")
    assert row["Octet is faster than the fastest by"] == f"1.50 {TIMES}"


def test_memory_is_compared_with_float32() -> None:
    sizes: dict[str, Any] = {"weights": 2e6, "activations": 1e6, "float_weights": 8e6, "float_activations": 4e6}
    row = row_of(page([measurement("memory", "net", "x86-64-v3", **sizes)]), "Figure 6", "net")
    assert (row["smaller by"], row["the paper's"]) == ("75%", "67 to 74 %")


def test_a_target_has_a_cell_for_each_framework() -> None:
    found = [measurement("targets", "TFLite", "x86-64-v3", state="equal", detail="")]
    found += [measurement("targets", "MXNet", "x86-64-v3", state="compiled", detail="no emulator")]
    row = row_of(page(found), "Table I", "x86-64-v3")
    assert (row["TFLite"], row["ONNX"], row["MXNet"]) == ("equal", "", "compiled")


def test_a_row_without_a_measurement_has_a_reason() -> None:
    text = page([])
    for table in tables_of(text):
        for row in table.rows:
            cells = table.cells(row)
            reason = cells.get("command, or why it is not measured", cells.get("Octet's", "not measured"))
            assert reason, row


def test_the_page_is_that_of_the_stored_measurements() -> None:
    assert PAGE.read_text() == page([*recorded.measurements(), *store.read()])
