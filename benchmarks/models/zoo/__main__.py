"""The zoo: networks of public packages with seeded random weights, quantized by their own tools. Checks which of them
Octet imports, how much of each runs in integers, and whether the results equal those of the network's own runtime:

    python -m benchmarks.models.zoo --make         # creates missing models, in the environment `zoo`
    python -m benchmarks.models.zoo --make --contest   # creates the models of the contest, which are larger
    python -m benchmarks.models.zoo --write        # checks all existing models, and writes docs/reference/zoo.md
    python -m benchmarks.models.zoo bert           # checks the models whose name contains `bert`, and prints

Octet's results are computed by the oracle, not by compiled code: every build verifies that both are equal. With
`--time`, each model is compiled too, and the table has a column for its time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness.home import CHECKOUT, Home, default_home
from benchmarks.harness.kept import write_page
from benchmarks.harness.tables import table
from benchmarks.harness.turns import time_calls
from benchmarks.models.zoo.entries import CONTESTED, ENTRIES, EXPLAINED, Entry
from service.compiler.importers.auto import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import DEFAULT_MODE, TORCH_X86
from service.core.builds.options import with_shapes
from service.core.errors import OctetError
from service.core.models.arrays import Array
from tests.support.compiling import compiled

TABLE = CHECKOUT / "docs" / "reference" / "zoo.md"
_LIMIT_S = 600
_CALLS = 20
_REASON = 160  # Characters of the reason in the table.
_CLOSE = 1e-4  # Relative to the largest result: float32 sums and functions in another order.


@dataclass(frozen=True)
class Row:
    """The result of checking one model.

    Attributes:
        reason: why it cannot be imported; "" if it can.
        percent: share of multiply-accumulates in integers.
        answers: the comparison of Octet's results with the runtime's, in words.
        time_ms: the time of the fastest call of the compiled model, on one thread; None if it was not timed.
    """

    entry: Entry
    reason: str
    percent: float = 0.0
    answers: str = ""
    time_ms: float | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="words in the names of models; by default all models")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--contest", action="store_true", help="the networks of the contest instead of the zoo")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--time", action="store_true")
    arguments = parser.parse_args()
    home = default_home()
    offered = CONTESTED if arguments.contest else ENTRIES
    chosen = [entry for entry in offered if all(word in f"{entry.network} {entry.tool}" for word in arguments.words)]
    rows = []
    for entry in chosen:
        if arguments.make:
            _make(home, entry)
        elif (home.models / f"{entry.file}.npz").exists():
            rows.append(_check(home, entry, timed=arguments.time))
            print(" | ".join(_cells(rows[-1])), flush=True)
    if arguments.write:
        write_page(TABLE, "\n".join(_page(rows)) + "\n")
    return 0


def _make(home: Home, entry: Entry) -> None:
    output = home.models / entry.file
    if output.with_name(output.name + ".npz").exists():
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    environment, maker = entry.maker
    command = [str(home.python(environment)), "-W", "ignore", "-m", maker]
    command += [entry.network, entry.tool, "--output", str(output)]
    try:
        subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=_LIMIT_S)
        print(f"{entry.network} {entry.tool}: made", flush=True)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        print(f"{entry.network} {entry.tool}: {lines[-1] if lines else 'failed'}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"{entry.network} {entry.tool}: took more than {_LIMIT_S} s", flush=True)


def _check(home: Home, entry: Entry, *, timed: bool) -> Row:
    source = home.models / entry.file
    with np.load(source.with_name(source.name + ".npz")) as arrays:
        saved = {name: arrays[name] for name in arrays}
    samples = list(_numbered(saved, "input"))
    try:
        imported = import_model(source.read_bytes(), shapes=_shapes(source, samples[0]))
    except OctetError as error:
        where = f" ({error.op})" if error.op and error.op not in error.message else ""
        return Row(entry, f"{error.message}{where}")
    report = coverage.report(imported.module)
    mode = get_mode(_numerics(imported.format))
    taken = len(imported.signature.inputs)
    actual = [oracle.run(imported.module, mode, sample[:taken]) for sample in samples]
    answers = _compared(actual, list(_numbered(saved, "output")))
    time_ms = _time_ms(source, mode.name, samples[0]) if timed else None
    return Row(entry, "", report["integer_percent"], answers, time_ms)


def _numerics(source_format: str) -> str:
    return TORCH_X86 if source_format == "torchscript" else DEFAULT_MODE[source_format]


def _numbered(saved: dict[str, Array], what: str) -> Iterator[list[Array]]:
    """Yields the arrays of each sample."""
    for number in range(len(saved)):
        names = [f"{what}{number}_{index}" for index in range(len(saved))]
        if names[0] not in saved:
            return
        yield [saved[name] for name in names if name in saved]


def _shapes(source: Path, sample: Sequence[Array]) -> dict[str, Sequence[int]]:
    if source.suffix != ".pt":
        return {}
    return {"": sample[0].shape}  # a TorchScript file does not contain it


def _compared(actual: list[list[Array]], expected: list[list[Array]]) -> str:
    ours = np.concatenate([each.reshape(-1).astype(np.float64) for sample in actual for each in sample])
    theirs = np.concatenate([each.reshape(-1).astype(np.float64) for sample in expected for each in sample])
    if ours.shape != theirs.shape:
        return f"{ours.size} values, not {theirs.size}"
    if (ours == theirs).all():
        return "equal"
    gap = float(np.abs(ours - theirs).max()) / max(1e-30, float(np.abs(theirs).max()))
    return f"within {gap:.1e}" if gap <= _CLOSE else f"off by {gap:.1e}"


def _time_ms(source: Path, numerics: str, sample: Sequence[Array]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        model = compiled(source, numerics, Path(folder), options=with_shapes(_shapes(source, sample)))
        inputs = list(sample[: len(model.signature.inputs)])
        return 1000 * min(time_calls(lambda: model.run(inputs), 0, _CALLS))


def _cells(row: Row) -> list[str]:
    percent = "" if row.reason else f"{row.percent:.1f}"
    reason = row.reason if len(row.reason) <= _REASON else row.reason[: _REASON - 1] + "…"
    answers, explained = row.answers, EXPLAINED.get((row.entry.network, row.entry.tool))
    if answers.startswith("off") and explained:
        answers = f"{answers}: {explained}"
    cells = [row.entry.network, row.entry.tool, "no" if row.reason else "yes", percent, answers or reason]
    return cells if row.time_ms is None else [*cells, f"{row.time_ms:.3f}"]


def _page(rows: Sequence[Row]) -> Iterator[str]:
    imported = sum(not row.reason for row in rows)
    heads = ["network", "tool", "imported", "% integer", "answers, or why not"]
    yield "# The zoo"
    yield ""
    yield (
        "Written by `python -m benchmarks.models.zoo --write`. Networks of timm, torchvision, transformers and "
        "Ultralytics with seeded random weights, small pictures and short texts, quantized by the tools that their "
        "users take, and asked two samples. `ort-…` are ONNX Runtime's tools on the files of torch's older exporter, "
        "`dynamo-…` on those of the newer one; `fused` stands for ONNX Runtime's transformer optimizer before them. "
        "`nncf` and `neural-compressor` quantize ONNX files; `fx` and `pt2e` are PyTorch's own; `tflite-…` are "
        "TensorFlow's converter on networks of keras.applications, against LiteRT's reference kernels."
    )
    yield ""
    yield f"{imported} of {len(rows)} are imported. The list has {len(ENTRIES)}; the others were not made in this run."
    yield ""
    yield (
        "Answers are compared with those of the framework's own runtime on the same file: *equal* bit for bit, "
        "*within* a part of the largest answer, which float32 sums and functions in another order explain, or *off by* "
        "it. Behind such a sum an 8-bit value may be one step off, which is a large part of an answer of a network "
        "with random weights."
    )
    yield ""
    rows_of_cells = [_cells(row) for row in rows]
    if any(row.time_ms is not None for row in rows):
        heads.append("ms")
    yield table(heads, ([cell.replace("|", "/") for cell in [*cells, ""][: len(heads)]] for cells in rows_of_cells))


if __name__ == "__main__":
    sys.exit(main())
