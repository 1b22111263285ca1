"""Starts the process of a contestant, stops it between its turns, lets it take a turn, and ends it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.harness.frameworks import Array, Job
from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.turn import Turn

_LIMIT_S = 600.0


class ContestantFailed(RuntimeError):
    """The contestant could not load the model, or died."""


class ContestantProcess:
    """A process that is stopped (SIGSTOP) between turns, so that a framework whose threads spin while they wait does
    not disturb the others. The class implements `turns.Timed`.

    Attributes:
        info: the message that the process sent after it had loaded the model.

    Raises:
        ContestantFailed: it could not be started, or did not load the model within `load_limit_s`.
    """

    def __init__(self, python: Path, job: Job, log: Path, load_limit_s: float = _LIMIT_S) -> None:
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
            self.info = self._request(asdict(job), load_limit_s)
            os.kill(self.pid, signal.SIGSTOP)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def pids(self) -> Sequence[int]:
        return [self.pid]

    def turn(self, seconds: float, limit_s: float) -> Turn:
        """Takes a turn. Raises ContestantFailed if the process died, or did not respond in time."""
        return Turn(**self._request_awake({"seconds": seconds}, limit_s))

    def durations_s(self, seconds: float) -> list[float]:
        """Returns the duration of each call of a turn. Raises ContestantFailed."""
        (durations,) = self._request_arrays({"durations": seconds})
        return [float(duration) for duration in durations]

    def outputs(self) -> list[Array]:
        """Returns the last call's outputs. Raises ContestantFailed."""
        return self._request_arrays({"outputs": True})

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request_arrays(self, request: dict[str, Any]) -> list[Array]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "arrays.npz")
            self._request_awake({**request, "path": str(path)}, _LIMIT_S)
            with np.load(path) as arrays:
                return [arrays[name] for name in arrays]

    def _request_awake(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        os.kill(self.pid, signal.SIGCONT)
        response = self._request(request, limit_s)
        os.kill(self.pid, signal.SIGSTOP)
        return response

    def _request(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as error:
            raise ContestantFailed(f"it ended with exit status {self._process.wait()}") from error
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            raise ContestantFailed(f"no answer within {limit_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise ContestantFailed(f"it ended with exit status {self._process.wait()}")
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            raise ContestantFailed(response["error"])
        return response
