"""Figures 4, 5 and 7 to 9 of Jain et al., the slides' and Intel's tables: times of Octet and of the frameworks, in int8
and in float32, by the contest's turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.contest.__main__ import describe
from benchmarks.contest.contestants import Contestant, contestants_for, contestants_named
from benchmarks.contest.figures import Results
from benchmarks.contest.match import Contest
from benchmarks.harness.home import Home
from benchmarks.harness.machine import cores_for
from benchmarks.harness.rounds import Rules
from benchmarks.models.catalog import Row, rows_named
from benchmarks.paper.store import Measurement, Run
from benchmarks.peak.instructions import available
from service.core.target import detect_host

PART = "speed"
CONTESTANTS: Sequence[Contestant] = [
    it
    for it in contestants_named(
        [
            *("octet-xnnpack", "octet-onnx", "octet-mxnet", "litert", "onnxruntime", "torch", "mxnet"),
            *("octet-fp32", "octet-fp32-tflite", "litert-fp32", "onnxruntime-fp32", "torch-fp32", "mxnet-fp32"),
        ]
    )
    if it.file  # without the loop that measures the hardware's limit
]
ROWS: Sequence[Row] = rows_named(
    [
        *("resnet50", "mobilenet_v2", "tf2_mobilenet_v2_1.0_224_ptq", "mobilenet_v2_1.0_224_quant"),
        *("mobilenet_v2_symmetric", "mobilenet_v1_0.25_128_quant", "pretrainedResnet_quant", "kws_ref_model"),
        *("inception_v3", "resnet18", "resnet50_v1", "resnet18_v1", "inceptionv3", "resnet50-batch16"),
    ]
)


def measure(home: Home, run: Run, rules: Rules, threads: Sequence[int], models: Sequence[str]) -> Iterator[Measurement]:
    """Measures the models whose files exist, and yields a row for each contestant and number of threads."""
    path = home.new_results("paper")
    path.parent.mkdir(parents=True, exist_ok=True)
    instruction = available(detect_host().features)[0].name
    with path.open("x") as output:
        contest = Contest(home, rules, threads, output, path.with_suffix(".log"), Results())
        contest.record(describe(rules, cores_for(max(threads)), instruction, ""))
        for row in ROWS:
            if models and row.name not in models:
                continue
            contest.match(row, CONTESTANTS, instruction)
            yield from _measurements(contest.results, run, row, threads)


def _measurements(results: Results, run: Run, row: Row, threads: Sequence[int]) -> Iterator[Measurement]:
    for contestant in contestants_for(row, CONTESTANTS):
        for count in threads:
            figure = results.figure(row.name, contestant.name, count)
            if figure is None:
                continue
            values = {
                "median_ms": figure.median_ms,
                "low_ms": figure.low_ms,
                "high_ms": figure.high_ms,
                "mostly_disturbed": 2 * figure.disturbed > figure.rounds,
            }
            package = "octet" if contestant.is_octet else contestant.title.partition(" (")[0]
            versions = {package: results.entries[row.name, contestant.name, count].info["version"]}
            yield run.measurement(PART, (row.name, contestant.name, str(count)), values, versions)
