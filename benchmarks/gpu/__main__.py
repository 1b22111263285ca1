"""The benchmark that `benchmarks/gpu.sh` runs on a machine with a GPU: checks results, then measures speed, PyTorch and
serving.

    python -m benchmarks.gpu     # in a folder of `benchmarks.gpu.prepare`; prints tables, and puts them into GPU.md

Each part is a separate process (`turn`, `serving`, `pytorch`), with a time limit: a part that fails, or takes too long,
only loses its own figures, and is reported. Each result is written as soon as it is measured. *On the card* is the time
of a CUDA graph that is launched repeatedly, by the GPU's clock; PyTorch is measured in the same way. *With copies* is
the time of a bound call, from inputs to outputs in the host's memory, by the host's clock. A figure is a median. Peaks
are measured before and after the models; the higher one counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu import records, replay
from benchmarks.gpu.samples import ABOUT_FILE
from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.tables import write_section

_ARTIFACTS = CHECKOUT / "artifacts"
_TOOLS = ("memcheck", "racecheck")
_KERNELS_S, _LAYER_S, _MODEL_S, _PEAK_S, _TOOL_S, _PEER_S = 120, 30, 60, 30, 60, 150  # Time limits of the parts.
_LAST_LINES = 3  # Lines of a failed part's output that are shown.
_PEER_BATCHES = (64, 256, 1, 8)  # The most informative batch sizes come first.
_DESCRIBED = "name,driver_version,clocks.max.sm,power.limit,mig.mode.current"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, default=9.5, help="for all parts; parts that have not begun by then are left out"
    )
    parser.add_argument("--results", type=Path, default=CHECKOUT, help="where results.md and results.jsonl are written")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="duration of the measurement of a model, and of each number of clients",
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64, 256], help="of the server")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-serving", action="store_true")
    run = Run(parser.parse_args())
    run.card()
    run.kernels()
    run.peaks()
    run.layers()
    run.models()
    run.peaks()
    run.sanitizer()
    if not run.asked.no_serving:
        run.serving()
    if not run.asked.no_peer:
        run.peers()
    print(run.write())
    bad = records.wrong(run.found, run.about)
    if bad:
        print(f"WRONG, OR NOT ANSWERED: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


class Run:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.asked, self.found = arguments, list[records.Record]()
        self.about = json.loads((_ARTIFACTS / ABOUT_FILE).read_text())
        self._end_s = time.monotonic() + 60 * arguments.minutes
        arguments.results.mkdir(parents=True, exist_ok=True)
        self._lines = arguments.results / "results.jsonl"
        self._lines.write_text("")

    def card(self) -> None:
        command = ["nvidia-smi", f"--query-gpu={_DESCRIBED}", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            self._fail("nvidia-smi", str(error))
        else:
            self._keep({"part": "card", "described": "; ".join(done.stdout.strip().splitlines())})

    def kernels(self) -> None:
        """Replays the launches of the kernels' tests."""
        if (folder := self._launches()) is not None:
            print("the kernels' launches …", file=sys.stderr, flush=True)
            for record in replay.replayed(folder, self._run, _KERNELS_S):
                self._keep(record)

    def layers(self) -> None:
        """Measures single convolutions, with tensor cores and with dp4a. Their results are checked before and after,
        like those of models.
        """
        for layer in self.about["layers"]:
            arguments = ["layer", str(_ARTIFACTS / layer["folder"]), layer["artifact"], layer["answers"]]
            named = {"part": "layer", "name": layer["name"]}
            kept: Any = lambda line, named=named: named | line  # noqa: E731
            self._part(layer["name"], "turn", [*arguments, str(self.asked.seconds)], _LAYER_S, kept)

    def peaks(self) -> None:
        for peak in self.about["peaks"]:
            arguments = ["peak", str(_ARTIFACTS / peak["name"]), peak["artifact"], str(peak["macs"])]
            named = {"part": "peak", "instruction": peak["instruction"]}
            self._part(peak["name"], "turn", arguments, _PEAK_S, lambda line, named=named: named | line)

    def models(self) -> None:
        """Measures models. The figures of a model with wrong results are reported, but marked."""
        for model in self.about["models"]:
            arguments = ["model", str(_ARTIFACTS / model["folder"]), model["artifact"], model["answers"]]
            record: dict[str, Any] = {"part": "model", "name": model["name"]}
            right: list[bool] = []

            def sort(line: dict[str, Any], record: dict[str, Any] = record, right: list[bool] = right) -> None:
                if "right" in line:
                    right.append(line["right"])
                record.update(line)

            self._part(model["name"], "turn", [*arguments, str(self.asked.seconds)], _MODEL_S, sort)
            if right:
                self._keep({"part": "right", "name": model["name"], "right": all(right)})
            if "card_s" in record:
                self._keep(record)

    def sanitizer(self) -> None:
        """Runs the model with the least work under NVIDIA's compute-sanitizer, if that is installed."""
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            self._fail("compute-sanitizer", "it is not installed, so nothing was checked")
            return
        model = min(self.about["models"], key=lambda each: each["macs"])
        once = ["-m", "benchmarks.gpu.turn", "once", str(_ARTIFACTS / model["folder"]), model["artifact"]]
        looked_at = {model["name"]: [sys.executable, *once]}
        if (folder := self._launches()) is not None:
            sample = replay.sample(folder)
            looked_at[f"{len(sample)} launches of the kernels' tests"] = replay.command(folder, sample)
        for name, command in looked_at.items():
            for tool_name in _TOOLS:
                looking = [tool, "--tool", tool_name, "--error-exitcode", "9", *command]
                status, _, message = self._run(looking, _TOOL_S)
                if status in (0, 9):
                    self._keep({"part": "sanitizer", "tool": tool_name, "name": name, "found": status == 9})
                if status != 0:
                    self._fail(f"compute-sanitizer {tool_name} of {name}", message)

    def _launches(self) -> Path | None:
        """Returns the folder of the recorded launches of the kernels' tests, if the package contains it."""
        folder = self.about["kernels"]["folder"]
        return _ARTIFACTS / folder if folder else None

    def serving(self) -> None:
        for model in self.about["models"]:
            if model["batch"] > 1:
                continue
            arguments = [
                str(_ARTIFACTS / model["folder"]),
                model["artifact"],
                model["answers"],
                str(self.asked.seconds),
            ]
            named = {"part": "serving", "model": model["model"]}

            def count_wrong(line: dict[str, Any], named: dict[str, Any] = named) -> records.Record:
                right = line.pop("right")
                return named | line | {"wrong": line["wrong"] + (0 if right else 1)}

            arguments += map(str, self.asked.clients)
            limit_s = 60 + 8 * len(self.asked.clients) * (1 + self.asked.seconds)
            self._part(f"serving {model['model']}", "serving", arguments, limit_s, count_wrong)

    def peers(self) -> None:
        networks = sorted({model["network"] for model in self.about["models"] if model["network"]}, reverse=True)
        known = {model["batch"] for model in self.about["models"]}
        batches = [*(each for each in _PEER_BATCHES if each in known), *sorted(known.difference(_PEER_BATCHES))]
        for dtype in records.DTYPES:
            for network in networks:
                named = {"part": "peer", "network": network, "dtype": dtype}
                arguments = [network, dtype, *map(str, batches)]
                self._part(
                    f"PyTorch {network} {dtype}", "pytorch", arguments, _PEER_S, lambda line, named=named: named | line
                )

    def write(self) -> str:
        """Writes the tables of the results so far into GPU.md, and returns them."""
        text = records.text(self.found, self.about, f"{datetime.now(UTC):%Y-%m-%d}")
        (self.asked.results / "results.md").write_text(f"{text}\n")
        write_section("GPU.md", "measured", text)
        return text

    def _part(self, name: str, module: str, arguments: list[str], limit_s: float, kept: Any) -> None:
        """Runs a process, and stores the result of `kept` for each line that the process prints, even if the process
        fails afterwards."""
        print(f"{name} …", file=sys.stderr, flush=True)
        status, lines, message = self._run([sys.executable, "-m", f"benchmarks.gpu.{module}", *arguments], limit_s)
        for line in lines:
            record = kept(line)
            if record is not None:
                self._keep(record)
        if status != 0:
            self._fail(name, message)
        self.write()

    def _run(self, command: list[str], limit_s: float) -> tuple[int, list[dict[str, Any]], str]:
        """Runs a command. Returns its status, the JSON lines that it printed, and its last output lines. Ends its
        children too.
        """
        left_s = min(limit_s, self._end_s - time.monotonic())
        if left_s <= 0:
            return replay.LATE, [], f"left out: the {self.asked.minutes:g} minutes were over"
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            process = subprocess.Popen(command, cwd=CHECKOUT, stdout=stdout, stderr=stderr, start_new_session=True)
            try:
                status: int | None = process.wait(left_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            stdout.seek(0)
            stderr.seek(0)
            lines = [
                json.loads(line) for line in stdout.read().splitlines() if line.startswith("{") and line.endswith("}")
            ]
            words = stderr.read().strip()
        sys.stderr.write(words[-2000:] + "\n" if words else "")
        last = " / ".join(words.splitlines()[-_LAST_LINES:]) or "it said nothing"
        return (replay.LATE, lines, f"took longer than {left_s:.0f} s") if status is None else (status, lines, last)

    def _keep(self, record: Mapping[str, Any]) -> None:
        self.found.append(record)
        line = json.dumps(record)
        print(line, flush=True)
        with self._lines.open("a") as file:
            file.write(line + "\n")

    def _fail(self, name: str, message: str) -> None:
        self._keep({"part": "failure", "of": name, "said": message})


if __name__ == "__main__":
    sys.exit(main())
