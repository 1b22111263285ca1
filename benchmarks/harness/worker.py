"""The process of one contestant: loads a model, then times it on request.

    python -m benchmarks.harness.worker < JOB

Reads lines of JSON and answers each with one: the job first, then `{"seconds": s}` for each turn. Runs in any of the
environments. The framework's output goes to standard error. Dies with the process that started it, even if it is
stopped.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from typing import Any, TextIO

from benchmarks.harness.frameworks import Job, framework
from benchmarks.harness.turn import take_turn

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
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
            _answer(answers, take_turn(loaded.call, json.loads(line)["seconds"]).to_json())
    except Exception as error:
        traceback.print_exc()
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})
    os._exit(0)  # some frameworks crash, or wait for their threads, at exit


def _answer(answers: TextIO, document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
