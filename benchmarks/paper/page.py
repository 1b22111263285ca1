"""Writes docs/reference/paper.md from the stored measurements and the papers' numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from benchmarks.harness.kept import DATE
from benchmarks.harness.tables import table
from benchmarks.paper import accuracy, agreement, intel, memory, published, targets
from benchmarks.paper.figures import BUSY, Figures, days, multiple, ratio, text, timed
from benchmarks.paper.store import Measurement
from service.core.target import TARGETS

_FRAMEWORKS = ("TFLite", "ONNX", "PyTorch", "PyTorch, exported", "MXNet")
_HARDWARE = {
    "x86-64-v4+vnni": "Intel Xeon, Cascade Lake",
    "cuda-sm_75": "NVIDIA Tesla T4",
    "aarch64": "Raspberry Pi 3 and 4",
}
_WHEN = ("machine", DATE)  # the titles of `timed`
_NOT_READ = "not available: only the abstract was read"
_INTRODUCTION = """\
# The papers' tables

Written by `make paper` from stored measurements; [how to run it](../../benchmarks/README.md#the-papers-tables). Each
table has the papers' numbers beside Octet's, and the command that measures Octet's or the reason why it cannot be
measured here.

The last column of a table shows when a row was measured. A row that was not measured again keeps its day. All times
of a row come from the same run. Times of earlier contests are those of [RESULTS](../../benchmarks/RESULTS.md). A star
marks a time of which most rounds were disturbed by other programs, and the date of its row has the words "{busy}".
Such times show that the command works, and no more."""


def page(measurements: Iterable[Measurement]) -> str:
    figures = Figures(measurements)
    sections = [
        _INTRODUCTION.format(busy=BUSY),
        _runs(figures),
        _sources(),
        _targets(figures),
        _accuracy(figures),
        _int8_over_float32(figures),
        _memory(figures),
        _frameworks(figures),
        _asymmetry(figures),
        intel.section(figures),
    ]
    return "\n\n".join(sections) + "\n"


def _runs(figures: Figures) -> str:
    rows = []
    for run, measured in figures.runs.items():
        machines, parts = {each.machine for each in measured}, {each.part for each in measured}
        versions = {f"{name} {version}" for each in measured for name, version in each.versions.items()}
        rows.append([run, *("; ".join(sorted(found)) for found in (machines, parts, versions))])
    return f"## Runs\n\n{table(['run', 'machine', 'parts', 'versions'], rows)}"


def _sources() -> str:
    rows = [[each.title, each.address, each.read] for each in published.SOURCES]
    return f"## Sources\n\n{table(['source', 'address', 'what of it was read'], rows)}"


def _targets(figures: Figures) -> str:
    rows = []
    for target in TARGETS:
        found = [figures.get(targets.PART, framework, target.name) for framework in _FRAMEWORKS]
        if any(found):
            cells = [each.values["state"] if each else "" for each in found]
            rows.append([target.name, *cells, _HARDWARE.get(target.name, ""), days(found)])
    columns = ["target", *_FRAMEWORKS, "the paper's hardware", DATE]
    return f"""## Table I: frameworks and hardware

The paper: pre-quantized models of TFLite, MXNet and PyTorch run on Intel CPUs, NVIDIA GPUs and ARM CPUs; each
framework alone runs well on some of them. The cells of its table are {_NOT_READ}.

Octet's: a small quantized model of each framework, compiled for each target. *Equal*: executed, and all outputs have
the framework's bits; *emulated*: by QEMU. *Compiled*: this machine neither executes nor emulates the target; the tests
emulate the kernels of GPUs. `python -m benchmarks.paper --only targets`

{table(columns, rows)}"""


def _accuracy(figures: Figures) -> str:
    rows = []
    for each in figures.of(accuracy.PART):
        model, framework, numerics = each.name
        values = each.values
        pairs = [f"{100 * values[f'{who}top1']:.3g} / {100 * values[f'{who}top5']:.3g} %" for who in ("framework_", "")]
        interval = f"{100 * values['low']:.1f} to {100 * values['high']:.1f} %"
        same = [f"{100 * values[name]:.4g} %" for name in ("same_top1", "equal_outputs")]
        rows.append([model, framework, numerics, str(values["inputs"]), *pairs, interval, *same, _NOT_READ, each.day])
    columns = ["model", "framework", "numerics", "photographs", "framework's top-1 / top-5", "Octet's"]
    columns += ["95 % interval of top-1", "same top-1", "equal outputs", "the paper's", DATE]
    networks = [_agreement(each) for each in figures.of(agreement.PART)]
    measured = {(network, framework) for network, framework, *_ in networks}
    for network in published.TORCH_ACCURACY:
        if (network, "PyTorch") not in measured:
            reason = "not measured yet" if network in agreement.NETWORKS else "not measured: no such network is here"
            networks.append([network, "PyTorch", "", reason, "", *_of_pytorch(network), ""])
    names = ["network", "framework", "numerics", "equal outputs", "largest difference", "PyTorch's top-1 / top-5"]
    return f"""## Table II: accuracy

The paper: the accuracy of models in their framework and in TVM, on ImageNet's validation set. That set is not
available here, so 100 photographs of 100 classes take its place, by `octet evaluate`. Outputs of a photograph are equal
if all of their bits are. `python -m benchmarks.paper --only accuracy`

{table(columns, rows)}

Networks of the other frameworks have random weights here, because no trained ones are available. All their outputs for
one input are compared; [conformance](conformance.md) has more inputs. The last columns are the third author's figures
for trained networks, on 10,000 images of the validation set, in PyTorch and in TVM, which rounds otherwise than
PyTorch. `python -m benchmarks.paper --only agreement`

{table([*names, "TVM's top-1 / top-5", DATE], networks)}"""


def _agreement(measured: Measurement) -> list[str]:
    network, framework, numerics = measured.name
    equal, difference = f"{measured.values['equal']:.4g} %", f"{measured.values['difference']:.3g}"
    theirs = _of_pytorch(network) if framework == "PyTorch" else ["", ""]
    return [network, framework, numerics, equal, difference, *theirs, measured.day]


def _of_pytorch(network: str) -> list[str]:
    """Returns the third author's accuracies of a network in PyTorch and in TVM."""
    found = published.TORCH_ACCURACY.get(network)
    return [f"{found[0]} / {found[1]} %", f"{found[2]} / {found[3]} %"] if found else ["", ""]


def _int8_over_float32(figures: Figures) -> str:
    networks, gains = [], []
    for model in figures.models:
        for threads in figures.threads:
            pair = figures.own_pair(model.name, threads)
            if pair is None:
                continue
            if threads == 1 and model.batch == 1:
                gains.append(pair)
            networks.append([model.title, str(threads), *map(text, pair), multiple(ratio(*pair)), *timed(pair)])
    rows = []
    for hardware, speedup in published.SPEEDUPS.items():
        own, reason, when = "", _NOT_HERE[hardware], ["", ""]
        if hardware.startswith("Intel") and gains:
            own = multiple(statistics.geometric_mean(ratio(*pair) for pair in gains))
            reason = f"`python -m benchmarks.paper --only speed`; the geometric mean of {len(gains)} networks, 1 thread"
            when = timed([each for pair in gains for each in pair])
        rows.append([hardware, multiple(speedup), own, reason, *when])
    return f"""## Figures 4 and 5: int8 against float32 of the same compiler

{table(["hardware", "the paper's mean", "Octet's", "command, or why it is not measured", *_WHEN], rows)}

By network. The figures of the paper's networks are {_NOT_READ}.
`python -m benchmarks.paper --only speed`

{table(["model", "threads", "float32 ms", "int8 ms", "int8 is faster by", *_WHEN], networks)}"""


_NO_BOARD = "not measured: no board was available; `benchmarks/device.sh` measures on one"
_NOT_HERE = {
    "Intel Xeon, Cascade Lake (AVX-512 VNNI)": "`python -m benchmarks.paper --only speed`",
    "NVIDIA Tesla T4": "not measured: no T4 was available; `benchmarks/gpu.sh` measures on one. "
    "[GPU](../../benchmarks/GPU.md) has the times on an H200",
    "Raspberry Pi 3": _NO_BOARD,
    "Raspberry Pi 4": _NO_BOARD,
}


def _memory(figures: Figures) -> str:
    low, high = published.MEMORY_PERCENT
    rows = []
    for each in figures.of(memory.PART):
        values = each.values
        sizes = [values[key] for key in ("weights", "activations", "float_weights", "float_activations")]
        saved = 1 - (sizes[0] + sizes[1]) / (sizes[2] + sizes[3])
        cells = [f"{size / 1e6:.3g}" for size in sizes]
        rows.append([*each.name, *cells, f"{saved:.0%}", f"{low} to {high} %", each.day])
    columns = ["model", "target", "weights", "activations", "weights, float32", "activations, float32"]
    return f"""## Figure 6: memory

Megabytes of weights and activations. Octet's weights contain what its kernels repeat for their tiles. For ARM's targets
see [ARM](../../benchmarks/ARM.md). `python -m benchmarks.paper --only memory`

{table([*columns, "smaller by", "the paper's", DATE], rows)}"""


def _frameworks(figures: Figures) -> str:
    peers = {"litert": "LiteRT", "onnxruntime": "ONNX Runtime", "torch": "PyTorch", "mxnet": "MXNet"}
    rows = []
    for model in figures.models:
        for threads in figures.threads:
            times = figures.beside(model.name, tuple(peers), threads)
            if times is None:
                continue
            own, *others = times
            by_peer = {each.name[1]: each for each in others}
            fastest = min(others, key=lambda each: float(each.values["median_ms"]))
            cells = [text(own), *(text(by_peer.get(peer)) for peer in peers), multiple(ratio(fastest, own))]
            rows.append([model.title, str(threads), *cells, *timed(times)])
    columns = ["model", "threads", "Octet ms", *(f"{name} ms" for name in peers.values())]
    boards = [
        [network, f"{theirs:g}", f"{tvm:g}", multiple(theirs / tvm), _NO_BOARD]
        for network, (theirs, tvm) in published.PI4_MS.items()
    ]
    return f"""## Figures 7 to 9: beside the frameworks

The paper: "{published.COMPARABLE}".
Its figures are {_NOT_READ}. The batch size is 1 unless a model's name gives another.
MXNet runs the networks of its own model zoo. `python -m benchmarks.paper --only speed`

{table([*columns, "Octet is faster than the fastest by", *_WHEN], rows)}

The first author's post: milliseconds on a Raspberry Pi 4 with 4 threads.

{table(["network", "TFLite ms", "TVM ms", "TVM is faster by", "Octet's"], boards)}"""


def _asymmetry(figures: Figures) -> str:
    names = ("mobilenet_v2_1.0_224_quant", "mobilenet_v2_symmetric")
    rows = []
    for contestant, title in (("octet-xnnpack", "Octet"), ("litert", "LiteRT")):
        for threads in figures.threads:
            pair = figures.two_models(names, contestant, threads)
            if pair is None:
                continue
            rows.append([title, str(threads), *map(text, pair), multiple(ratio(*pair)), *timed(pair)])
    first, second = map(multiple, published.ASYMMETRY)
    return f"""## The slides: asymmetric weights

The slides: with asymmetric weights, a model takes {first} and {second} the time of one with symmetric weights.
Octet's: the hosted MobileNetV2, unchanged and with the zero points of its weights moved to the middle.
`python -m benchmarks.paper --only speed`

{table(["contestant", "threads", "asymmetric ms", "symmetric ms", "asymmetric / symmetric", *_WHEN], rows)}"""
