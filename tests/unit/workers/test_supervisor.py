"""A process that is started again, and ended with its parent."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.core.settings import Serving, Settings, load_settings
from service.workers import supervisor as supervisor_module
from service.workers.supervisor import Supervisor, compile_worker
from tests.support.building import eventually

OBEDIENT = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


@contextmanager
def supervising(program: str, grace_s: float = 5.0) -> Iterator[Supervisor]:
    supervisor = Supervisor([sys.executable, "-c", program], dict(os.environ), grace_s=grace_s)
    supervisor.start()
    try:
        eventually(lambda: supervisor.pid is not None)
        yield supervisor
    finally:
        supervisor.stop()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_of(supervisor: Supervisor) -> int:
    assert supervisor.pid is not None
    return supervisor.pid


def test_one_that_is_killed_is_started_again() -> None:
    with supervising(OBEDIENT) as supervisor:
        first = pid_of(supervisor)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: supervisor.pid not in (None, first))


def test_one_that_keeps_dying_is_started_less_and_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_FIRST_PAUSE_S", 0.2)
    starts = tmp_path / "starts"
    program = f"import time; open({str(starts)!r}, 'a').write(f'{{time.monotonic()}}\\n')"
    supervisor = Supervisor([sys.executable, "-c", program], dict(os.environ))
    supervisor.start()
    eventually(lambda: starts.exists() and len(starts.read_text().split()) >= 4)
    supervisor.stop()
    times_s = [float(line) for line in starts.read_text().split()[:4]]
    pauses_s = [later - earlier for earlier, later in itertools.pairwise(times_s)]
    assert pauses_s[2] > 2 * pauses_s[0] * 0.9


def test_stopping_ends_it_and_starts_no_other() -> None:
    with supervising(OBEDIENT) as supervisor:
        pid = pid_of(supervisor)
        supervisor.stop()
        assert not is_alive(pid)
        assert supervisor.pid is None


def test_one_that_does_not_end_is_killed() -> None:
    with supervising(STUBBORN, grace_s=0.3) as supervisor:
        pid = pid_of(supervisor)
        time.sleep(0.5)  # until it ignores the signal
        supervisor.stop()
        assert not is_alive(pid)


def test_stopping_one_that_was_never_started() -> None:
    Supervisor(["false"], {}).stop()


def test_ctrl_c_in_the_terminal_is_not_for_it() -> None:
    with supervising(OBEDIENT) as supervisor:
        assert os.getsid(pid_of(supervisor)) == pid_of(supervisor)


def test_the_compile_worker_has_the_settings_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"mobilenet": Serving(**dict(Serving(), instances=2, predict_timeout_s=1.5))}
    settings = Settings(
        data_dir=tmp_path,
        lease_s=1.5,
        allow_unsandboxed=True,
        max_build_attempts=7,
        models=models,
        preload="a, b@stable",
    )
    environment = compile_worker(settings)._environment
    monkeypatch.setattr(os, "environ", environment)
    assert load_settings() == settings


PARENT = """
import sys, time
from pathlib import Path
from service.core.settings import Settings
from service.workers.supervisor import compile_worker
supervisor = compile_worker(Settings(data_dir=Path(sys.argv[1])))
supervisor.start()
while supervisor.pid is None:
    time.sleep(0.01)
print(supervisor.pid, flush=True)
time.sleep(60)
"""


def test_the_compile_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        eventually(lambda: (tmp_path / "octet.sqlite3").exists())  # it runs
        parent.kill()
    eventually(lambda: not is_alive(worker))
