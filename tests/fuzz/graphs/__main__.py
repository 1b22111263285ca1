"""Builds random graphs and compares them: `python -m tests.fuzz.graphs FORMAT [--count 2000] [--seed 0]`.

FORMAT is `onnx`, `tflite`, or `pieces`, which are cut from files that TensorFlow's converter wrote. A finding is a
value that differs from the reference runtime's, or an error other than the refusal of an unsupported feature. Each is
minimized and written to `fuzz-findings/graphs`, with the inputs that reproduce it. The exit status is 1 if there was a
finding.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from tests.fuzz.graphs.judge import NUMERICS

_REPORT_EVERY = 25


class Hunt:
    """Worker processes that each judge a range of seeds, and their findings.

    A worker runs compiled code and the reference runtime in its own process. If it crashes outside of the reference
    runtime, the graph that it was building is a finding.
    """

    def __init__(self, format_: str, numerics: str, findings: Path, count: int) -> None:
        self._command = [sys.executable, "-m", "tests.fuzz.graphs.worker", format_, numerics, str(findings)]
        self._lock, self._count = Lock(), count
        self.outcomes, self.refusals, self.findings = Counter[str](), Counter[str](), list[str]()

    def judge(self, seeds: range) -> None:
        while seeds:
            process = subprocess.Popen([*self._command, str(seeds.start), str(seeds.stop)], stdout=subprocess.PIPE)
            assert process.stdout is not None
            following, is_reference = seeds.start, True
            for line in process.stdout:
                message = json.loads(line)
                is_reference = message.get("reference_runs", True)
                if "seed" in message:
                    following = message["seed"] + 1
                    self._note(message)
            if process.wait() and following < seeds.stop:
                outcome = "invalid" if is_reference else f"crash {process.returncode}"
                self._note({"seed": following, "outcome": outcome, "finding": not is_reference, "text": ""})
                following += 1
            seeds = range(following, seeds.stop)

    def _note(self, verdict: dict[str, Any]) -> None:
        with self._lock:
            self.outcomes[verdict["outcome"]] += 1
            if verdict["outcome"] == "refused":
                self.refusals[verdict["text"].partition(":")[0]] += 1
            if verdict["finding"]:
                self.findings.append(f"seed {verdict['seed']}: {verdict['outcome']}: {verdict['text']}")
                print(f"FOUND {self.findings[-1]}", flush=True)
            done = self.outcomes.total()
            if done % _REPORT_EVERY == 0 or done == self._count:
                print(f"{done} of {self._count} graphs: {dict(self.outcomes)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.graphs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("format", choices=["onnx", "tflite", "pieces"])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; each next graph has the next seed")
    parser.add_argument("--numerics", help="the mode of the builds; by default the first of the format")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings/graphs"), help="where they are written")
    options = parser.parse_args()
    numerics = options.numerics or NUMERICS["onnx" if options.format == "onnx" else "tflite"][0]
    options.findings.mkdir(parents=True, exist_ok=True)
    hunt = Hunt(options.format, numerics, options.findings, options.count)
    end = options.seed + options.count
    edges = [options.seed + options.count * part // options.workers for part in range(options.workers)] + [end]
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(hunt.judge, map(range, edges[:-1], edges[1:])))
    print(f"{options.format}, {numerics}, seeds {options.seed} to {end - 1}: {dict(hunt.outcomes)}")
    print(f"refused operators: {dict(hunt.refusals.most_common())}")
    print(f"{len(hunt.findings)} findings")
    return 1 if hunt.findings else 0


if __name__ == "__main__":
    sys.exit(main())
