"""What `benchmarks/gpu.sh` runs on a machine with a card: correct first, then fast, beside PyTorch.

    python -m benchmarks.gpu FOLDER          # of `benchmarks.gpu.prepare`; prints tables, and puts them into GPU.md

Wants NumPy, Octet's runtime and, for the peer's columns, PyTorch. *On the card* is the sum of a run's calls, each
between two events; *whole* is a bound call, copies of inputs and outputs included, as a client of the runtime has it.
Peaks are measured between the models, in the same minutes. A figure is the median of its turns' medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.gpu.samples import ABOUT_FILE, digest, inputs_of
from service.core.buffers import aligned_empty
from service.runtime.loading import load

_PAGE = Path(__file__).parents[1] / "GPU.md"
_BEGIN, _END = "<!-- measured: written by benchmarks.gpu, from here -->", "<!-- measured: to here -->"
_PEER_LIMIT_S = 240


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    asked = parser.parse_args()
    about = json.loads((asked.folder / ABOUT_FILE).read_text())
    wrong = [model["name"] for model in about["models"] if not _is_right(asked.folder, model)]
    for name in wrong:
        print(f"WRONG: {name} does not answer what the CPU answers", file=sys.stderr)
    rows, peaks = [], _peaks(asked.folder, about, asked)
    for model in about["models"]:
        figures = _measured(asked.folder / model["name"], asked)
        peer = {} if asked.no_peer else _peer(model["model"], model["batch"])
        rows.append({**model, **figures, **peer, "right": model["name"] not in wrong})
        print(json.dumps(rows[-1]), flush=True)
    peaks = {
        name: max(value, again)
        for (name, value), again in zip(peaks.items(), _peaks(asked.folder, about, asked).values(), strict=True)
    }
    text = _text(about, rows, peaks)
    print(text)
    page = _PAGE.read_text()
    if _BEGIN in page:
        before, _, rest = page.partition(_BEGIN)
        _PAGE.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{rest.partition(_END)[2]}")
    return 1 if wrong else 0


def _is_right(folder: Path, model: dict[str, Any]) -> bool:
    loaded = load(folder / model["name"])
    return digest(loaded.run(inputs_of(loaded.signature))) == str(model["answers"])


def _measured(artifact: Path, asked: argparse.Namespace) -> dict[str, float]:
    model = load(artifact)
    inputs = inputs_of(model.signature)
    on_card = [float(model.time_calls(inputs).sum()) for _ in range(20)]
    model.bind(inputs, [aligned_empty(spec.shape, spec.dtype) for spec in model.signature.outputs])
    whole = statistics.median(_median_s(model, asked.seconds) for _ in range(asked.rounds))
    return {"whole_s": whole, "card_s": statistics.median(on_card), "calls": len(model.time_calls(inputs))}


def _median_s(call: Any, seconds: float) -> float:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _peaks(folder: Path, about: dict[str, Any], asked: argparse.Namespace) -> dict[str, float]:
    """Multiply-accumulates in a second, by instruction."""
    found = {}
    for each in about["peaks"]:
        model = load(folder / each["name"])
        inputs = inputs_of(model.signature)
        fastest = min(float(model.time_calls(inputs).sum()) for _ in range(20))
        found[each["instruction"]] = each["macs"] / fastest
    return found


def _peer(model: str, batch: int) -> dict[str, float]:
    """PyTorch's times, by numbers' type; what fails is said, and its column empty."""
    network = "resnet50" if "resnet50" in model else "mobilenet_v2"
    found = {}
    for dtype in ("bfloat16", "float16"):
        command = [sys.executable, "-m", "benchmarks.gpu.pytorch", network, dtype, str(batch)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PEER_LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"PyTorch {dtype}: took longer than {_PEER_LIMIT_S} s", file=sys.stderr)
            continue
        if done.returncode:
            print(f"PyTorch {dtype}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
        else:
            found[f"{dtype}_s"] = float(json.loads(done.stdout.splitlines()[-1])["median_s"])
    return found


def _text(about: dict[str, Any], rows: list[dict[str, Any]], peaks: dict[str, float]) -> str:
    best = max(peaks.values(), default=0.0)
    described = ", ".join(f"{name} {2 * value / 1e12:.0f} TOPS" for name, value in peaks.items())
    lines = [
        f"On {_card()}, {date.today()}, {about['target']}; measured peaks: {described}.",
        "",
        "| model | batch | CPU's bytes | whole, ms | on the card, ms | images/s on the card | % of peak"
        " | PyTorch bf16, ms | fp16, ms | bf16 / ours |",
        "| --- " * 10 + "|",
    ]
    for row in rows:
        card, peer = row["card_s"], row.get("bfloat16_s")
        share = 100 * row["macs"] / card / best if best else 0.0
        cells = [
            *(row["model"], str(row["batch"]), "yes" if row["right"] else "NO"),
            *(f"{1e3 * row['whole_s']:.3f}", f"{1e3 * card:.3f}", f"{row['batch'] / card:,.0f}", f"{share:.0f}"),
            *(_milliseconds(row.get(f"{dtype}_s")) for dtype in ("bfloat16", "float16")),
            f"{peer / card:.2f}" if peer else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3f}"


def _card() -> str:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except OSError:
        return "a card that nvidia-smi does not name"
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 else "an unnamed card"


if __name__ == "__main__":
    sys.exit(main())
