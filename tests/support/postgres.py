"""Starts a real PostgreSQL server in a temporary folder on a Unix socket, if one is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.support.waiting import WORK_TIMEOUT_S

if TYPE_CHECKING:
    import psycopg


def why_not() -> str | None:
    """Returns the reason why no server can be started on this machine, or None if one can."""
    if binaries() is None:
        return "no PostgreSQL server is installed (Debian: apt-get install postgresql)"
    if find_spec("psycopg") is None:
        return "the driver psycopg is not installed"
    if os.getuid() == 0 and _unprivileged() is None:
        return "PostgreSQL refuses to run as root, and there is no user postgres"
    return None


class Server:
    """A PostgreSQL cluster in a separate folder, whose server can be killed and restarted.

    Attributes:
        folder: the folder of its socket and its data.
    """

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        programs = binaries()
        assert programs is not None
        self.folder, self._binaries, self._options = folder, programs, options
        self._log = folder / "log"
        self._user = _unprivileged() if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None

    def initialize(self) -> None:
        self.run("initdb", "-D", self.data, "-U", "octet", "--auth=trust", "--no-sync", "--encoding=UTF8")

    def copy_of(self, primary: Server) -> None:
        """Makes this a standby of a running server."""
        self.run("pg_basebackup", "-h", primary.folder, "-U", "octet", "-D", self.data, "-R", "-X", "stream")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, program: str, *arguments: object) -> None:
        """Runs a program of PostgreSQL as the user that owns the server."""
        command = [*self._become(), self._binaries / program, *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder)

    def start(self) -> None:
        fixed: list[str | Path] = ["-D", self.data, "-k", self.folder, "-c", "listen_addresses=", "-c", "fsync=off"]
        program = [*self._become(), self._binaries / "postgres"]
        command = [*program, *fixed, "-c", "max_connections=200", *self._options]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder)
        _wait_until_ready(self._binaries, self.folder, self._process, self._log)

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-D", self.data)

    def connected(self) -> psycopg.Connection[tuple[object, ...]]:
        import psycopg

        return psycopg.connect(database_url(str(self.folder)), autocommit=True)

    def crash(self) -> None:
        """Ends all processes at once, without a checkpoint."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=WORK_TIMEOUT_S)
            self._process = None

    def _become(self) -> list[str | Path]:
        if self._user is None:
            return []
        who = [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--init-groups"]
        return ["setpriv", *who, "--pdeathsig=INT"]


@contextmanager
def folder() -> Iterator[Path]:
    """Yields a new folder whose path is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="octet-pg-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running(*options: str) -> Iterator[Server]:
    """Starts a new server and yields it."""
    with folder() as where:
        server = Server(where, options)
        server.initialize()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def server() -> Iterator[str]:
    """Starts a server. Yields the folder of its socket, for `database_url`."""
    with running() as started:
        yield str(started.folder)


def database_url(server: str, schema: str = "public") -> str:
    return f"postgresql://octet@/postgres?host={quote(server, safe='')}&options=-csearch_path%3D{schema}"


def binaries() -> Path | None:
    """Returns the folder of the newest installed server, or None if none is installed.

    Debian installs each version in its own folder outside of the PATH.
    """
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


def _unprivileged() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


def _wait_until_ready(binaries: Path, folder: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + WORK_TIMEOUT_S
    while subprocess.run([binaries / "pg_isready", "-q", "-h", folder], check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")
        time.sleep(0.05)
