"""The section of the page about Intel's paper of 2018."""

from __future__ import annotations

from benchmarks.harness.kept import DATE
from benchmarks.harness.tables import table
from benchmarks.paper import published
from benchmarks.paper.figures import Figures, multiple, ratio, text, timed
from benchmarks.paper.published import Intel

# The paper's network -> the models of the contest: for throughput, and for latency.
_THROUGHPUT = {"ResNet-50": "resnet50-batch16"}
_LATENCY = {"ResNet-50": "resnet50", "Inception-v3": "inception_v3"}
_COMMAND = "`python -m benchmarks.paper --only speed`"
_NO_SSD = "not measured: no SSD with VGG-16 is available here"
_ONE_BATCH = "not measured: the contest has batches of ResNet-50 only"
_UNTRAINED = "not measured: no trained network of this architecture is available here"
_STEPS = {
    "folded batch normalization": "the tool that quantized the file has folded it; Octet keeps those in a file",
    "fused convolution and ReLU": "part of each kernel, so it cannot be switched off",
    "removed sparsity (strides moved)": "a pass (move-strides) computes only what strided readers read: 9.7 % fewer "
    "products in ResNet-50 v1 (ADR 0013)",
    "fused convolution and element-wise sum": "part of each kernel, so it cannot be switched off",
    "8 bits": "see the tables above",
}


def section(figures: Figures) -> str:
    throughput = [_throughput(figures, name, each) for name, each in published.INTEL_NETWORKS.items()]
    latency = [_latency(figures, name, each) for name, each in published.INTEL_NETWORKS.items()]
    theirs = ["BVLC Caffe", "IntelCaffe float32", "optimized float32", "8 bits", "8 bits are faster than IntelCaffe by"]
    own = [
        "Octet float32",
        "Octet int8",
        "Octet's int8 is faster by",
        "command, or why it is not measured",
        "machine",
        DATE,
    ]
    accuracy = [
        [name, *each.accuracy, _NO_SSD if each.latency_ms[0] is None else _UNTRAINED]
        for name, each in published.INTEL_NETWORKS.items()
    ]
    steps, before = [], published.INTEL_NETWORKS["ResNet-50"].images_per_s[1]
    for step, images_per_s in published.INTEL_STEPS.items():
        steps.append([step, str(images_per_s), multiple(images_per_s / before), _STEPS[step]])
        before = images_per_s
    return f"""## Intel 2018: 8-bit inference with IntelCaffe

The paper measures on one socket (18 cores) of c5.18xlarge, a Xeon Platinum 8124M: AVX-512 without VNNI. Its figures
show the method and contain no measurements.

### Table 1: throughput

Images per second. The paper's batch size is 64, and 32 for SSD; Octet's is 16 on 1 thread.
`python -m benchmarks.paper --only speed`

{table(["network", *theirs, *own], throughput)}

### Table 2: latency

Milliseconds at batch size 1, the paper's on 18 cores, Octet's on 1 thread. `python -m benchmarks.paper --only speed`

{table(["network", *theirs, *own], latency)}

### Table 3: accuracy

Percent on ImageNet's validation set, and on PASCAL VOC2007 for SSD. Octet's accuracy against float32 for other networks
is in [QUANTIZATION](../../benchmarks/QUANTIZATION.md).

{table(["network", "float32", "8 bits", "Octet's"], accuracy)}

### Table 1, step by step

Images per second of ResNet-50 after each step; the baseline has 158.

{table(["step", "images/s", "faster than before by", "in Octet"], steps)}"""


def _throughput(figures: Figures, name: str, paper: Intel) -> list[str]:
    cells = [name, *(f"{each:g}" if each else "N/A" for each in paper.images_per_s)]
    cells.append(multiple(paper.images_per_s[3] / paper.images_per_s[1]))
    model = _THROUGHPUT.get(name)
    row = next((each for each in figures.models if each.name == model), None)
    pair = figures.own_pair(row.name, 1) if row else None
    if row is None or pair is None:
        return [*cells, "", "", "", *_reason(name, model)]
    own = [f"{1e3 * row.batch / each.values['median_ms']:.4g}" for each in pair]
    return [*cells, *own, multiple(ratio(*pair)), _COMMAND, *timed(pair)]


def _latency(figures: Figures, name: str, paper: Intel) -> list[str]:
    cells = [name, *(f"{each:g}" if each else "N/A" for each in paper.latency_ms)]
    cells.append(multiple(paper.latency_ms[1] / paper.latency_ms[3]))
    model = _LATENCY.get(name)
    pair = figures.own_pair(model, 1) if model else None
    if pair is None:
        return [*cells, "", "", "", *_reason(name, model)]
    return [*cells, *map(text, pair), multiple(ratio(*pair)), _COMMAND, *timed(pair)]


def _reason(name: str, model: str | None) -> list[str]:
    if model:
        return [f"not measured yet; {_COMMAND}", "", ""]
    return [_NO_SSD if name.startswith("SSD") else _ONE_BATCH, "", ""]
