"""The process of one contestant: loads a model, then times it on request.

    python -m benchmarks.harness.worker < JOB

Reads lines of JSON and answers each with one: the job first, then `{"seconds": s}` for a turn, `{"durations": s,
"path": p}` for a turn whose durations are written to a file, or `{"outputs": true, "path": p}` for the last call's
outputs. Runs in any of the environments. The framework's output goes to standard error. Dies with the process that
started it, even if it is stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, TextIO

import numpy as np

from benchmarks.harness.frameworks import Job, Loaded, framework
from benchmarks.harness.machine import end_with_parent
from benchmarks.harness.turn import take_turn
from benchmarks.harness.turns import time_warm_calls


def main() -> None:
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = Job(**json.loads(sys.stdin.readline()))
    os.sched_setaffinity(0, job.cores)  # before any thread exists
    begun = time.perf_counter()
    try:
        loaded = framework(job.framework).load(job)
        loaded.call()
        shapes = [list(output.shape) for output in loaded.outputs()]
        _answer(answers, {**loaded.info, "load_s": time.perf_counter() - begun, "output_shapes": shapes})
        for line in sys.stdin:
            _answer(answers, respond(loaded, json.loads(line)))
    except Exception as error:
        traceback.print_exc()
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})
    os._exit(0)  # some frameworks crash, or wait for their threads, at exit


def respond(loaded: Loaded, request: dict[str, Any]) -> dict[str, Any]:
    if "seconds" in request:
        return take_turn(loaded.call, request["seconds"]).to_json()
    is_turn = "durations" in request
    arrays = [np.array(time_warm_calls(loaded.call, request["durations"]))] if is_turn else loaded.outputs()
    np.savez(request["path"], *arrays)
    return {}


def _answer(answers: TextIO, document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
