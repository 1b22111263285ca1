"""Keeps one process of another program running: starts it, and again when it dies, until told to stop."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from service.core.settings import Settings

_logger = logging.getLogger(__name__)
_LOOK_S = 0.1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_HEALTHY_S = 60.0  # who lived this long did not die of being started
_GRACE_S = 10.0


class Supervisor:
    """One child process, watched by one thread.

    The thread starts the child itself, and lives as long: the kernel tells a child that its parent died when the
    *thread* that started it does.

    Args:
        command: what to run; `--parent PID` is added.
        environment: of the child, all of it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, grace_s: float = _GRACE_S) -> None:
        self._command = [*command, "--parent", str(os.getpid())]
        self._environment, self._grace_s = dict(environment), grace_s
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise, name="octet-supervisor", daemon=True)

    @property
    def pid(self) -> int | None:
        """The child's, while there is one."""
        child = self._child
        return None if child is None else child.pid

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Lets the child end what it must (SIGTERM), kills it if that takes too long, and waits for its end."""
        self.begin_stop()
        if self._thread.ident is not None:
            self._thread.join()

    def begin_stop(self) -> None:
        """As `stop`, without waiting. May be called in a signal handler."""
        self._stop.set()

    def _supervise(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            started_s = time.monotonic()
            code = self._run()
            if self._stop.is_set():
                return
            pause_s = _FIRST_PAUSE_S if time.monotonic() - started_s > _HEALTHY_S else pause_s
            _logger.error("the compile worker ended (%s); starting another in %.1f s", _why(code), pause_s)
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _run(self) -> int:
        # A session of its own: Ctrl-C in our terminal is for us, and we then tell the child.
        with subprocess.Popen(
            self._command, env=self._environment, stdin=subprocess.DEVNULL, start_new_session=True
        ) as child:
            self._child = child
            while child.poll() is None and not self._stop.wait(_LOOK_S):
                pass
            if child.poll() is None:
                self._end(child)
            self._child = None
            return child.wait()

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.terminate()
        try:
            child.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            _logger.warning("the compile worker did not end in %.0f s, and is killed", self._grace_s)
            child.kill()


def compile_worker(settings: Settings) -> Supervisor:
    """A supervisor of `octet worker compile` with the same settings."""
    environment = dict(os.environ)
    for name, value in settings.model_dump(mode="json", exclude_none=True).items():
        environment[f"OCTET_{name.upper()}"] = value if isinstance(value, str) else json.dumps(value)
    environment["OCTET_DATA_DIR"] = str(settings.data_dir.absolute())
    verbose = ["--verbose"] if _logger.isEnabledFor(logging.INFO) else []
    return Supervisor([sys.executable, "-m", "service.workers.compile_worker", *verbose], environment)


def _why(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"signal {-code}: {signal.strsignal(-code)}"
