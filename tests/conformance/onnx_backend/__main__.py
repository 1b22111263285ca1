"""Runs ONNX's backend tests on compiled code:

    PYTHON tests/conformance/onnx_backend/collect.py FOLDER      # in an environment with the package onnx
    python -m tests.conformance.onnx_backend FOLDER              # prints the outcome of each case
    python -m tests.conformance.onnx_backend FOLDER --write      # also writes docs/reference/conformance.md
    python -m tests.conformance.onnx_backend FOLDER gather --oracle    # quick: cases with `gather` in their names

An environment with the package is `onnxruntime` of `python -m benchmarks.setup_peers`. Cases run in a process of their
own, a hundred at a time, because a fault in compiled code ends the process.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.kept import today
from tests.conformance.onnx_backend.judge import Case, Verdict, as_json, judge, load_cases
from tests.conformance.onnx_backend.outcomes import FAILED
from tests.conformance.onnx_backend.table import replaced, section

RESULTS = CHECKOUT / "docs" / "reference" / "onnx_backend.json"
PAGE = CHECKOUT / "docs" / "reference" / "conformance.md"
_BATCH = 100
_LIMIT_S = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", help="words in the names of cases; by default all cases")
    parser.add_argument("--oracle", action="store_true", help="compute with the oracle, without compiling")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch is not None:
        _run_batch(arguments.folder, arguments.batch, arguments.words, compiled=not arguments.oracle)
        return 0
    results = run_all(arguments.folder, arguments.words, compiled=not arguments.oracle)
    outcomes = Counter(each["outcome"] for each in results.values())
    print(f"{len(results)} cases: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.most_common())}")
    if arguments.write:
        write(results)
    return 0


def run_all(folder: Path, words: Sequence[str] = (), *, compiled: bool) -> dict[str, Mapping[str, Any]]:
    """Returns the result of each case, by name."""
    count = len(json.loads((folder / "cases.json").read_text()))
    results: dict[str, Mapping[str, Any]] = {}
    for batch in range(-(-count // _BATCH)):
        command = [sys.executable, "-m", "tests.conformance.onnx_backend", str(folder), *words, "--batch", str(batch)]
        done = subprocess.run(
            [*command, *([] if compiled else ["--oracle"])], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                results |= json.loads(line)
        if done.returncode:
            print(f"batch {batch} ended with {done.returncode}: {done.stderr[-400:]}", flush=True)
        print(f"{len(results)} cases", file=sys.stderr, flush=True)
    return results


def write(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the results and their table."""
    RESULTS.write_text("".join(["{\n", ",\n".join(map(_line, sorted(results.items()))), "\n}\n"]))
    PAGE.write_text(replaced(PAGE.read_text(), section(dict(sorted(results.items())), today())))


def _line(item: tuple[str, Mapping[str, Any]]) -> str:
    name, entry = item
    return f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}"


def _run_batch(folder: Path, batch: int, words: Sequence[str], *, compiled: bool) -> None:
    """Prints one line of JSON for each case of the batch."""
    signal.signal(signal.SIGALRM, _stop)
    for case in load_cases(folder, slice(batch * _BATCH, (batch + 1) * _BATCH), words):
        print(json.dumps({case.name: _judged(case, compiled=compiled)}), flush=True)


def _judged(case: Case, *, compiled: bool) -> Mapping[str, Any]:
    signal.alarm(_LIMIT_S)
    try:
        verdict = judge(case, compiled=compiled)
    except TimeoutError:
        verdict = Verdict(FAILED, f"took more than {_LIMIT_S} s")
    finally:
        signal.alarm(0)
    return as_json(verdict, case)


def _stop(_signal: int, _frame: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main())
