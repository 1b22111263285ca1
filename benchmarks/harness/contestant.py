"""A contestant's process: starts it, stops it between its turns, lets it take one, ends it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.harness.frameworks import Job
from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.turn import Turn


class ContestantFailed(RuntimeError):
    """The contestant could not load the model, or died."""


class ContestantProcess:
    """A process that is stopped (SIGSTOP) between turns, so that a framework whose threads spin while they wait does
    not disturb the others.

    Attributes:
        info: its message after loading the model.

    Raises:
        ContestantFailed: it could not be started, or did not load the model within `load_limit_s`.
    """

    def __init__(self, python: Path, job: Job, log: Path, load_limit_s: float) -> None:
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": str(job.threads)}
        with log.open("ab") as errors:
            try:
                self._process = subprocess.Popen(
                    [python, "-m", "benchmarks.harness.worker"],
                    cwd=CHECKOUT,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                )
            except OSError as error:
                raise ContestantFailed(f"{python}: {error.strerror}; run: python -m benchmarks.setup_peers") from error
        try:
            self.info = self._ask(asdict(job), load_limit_s)
            os.kill(self.pid, signal.SIGSTOP)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def turn(self, seconds: float, limit_s: float) -> Turn:
        """Takes a turn. Raises ContestantFailed if the process died, or did not respond in time."""
        os.kill(self.pid, signal.SIGCONT)
        turn = Turn(**self._ask({"seconds": seconds}, limit_s))
        os.kill(self.pid, signal.SIGSTOP)
        return turn

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, question: dict[str, Any], limit_s: float) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError as error:
            raise ContestantFailed(f"it ended with exit status {self._process.wait()}") from error
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            raise ContestantFailed(f"no answer within {limit_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise ContestantFailed(f"it ended with exit status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContestantFailed(answer["error"])
        return answer
