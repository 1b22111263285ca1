"""A PostgreSQL server of our own, where one is installed: a real one, in a temporary folder, on a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from tests.support.waiting import WORK_TIMEOUT_S


def why_not() -> str | None:
    """Why no server can be started here; None if one can."""
    if _binaries() is None:
        return "no PostgreSQL server is installed (Debian: apt-get install postgresql)"
    if find_spec("psycopg") is None:
        return "the driver psycopg is not installed"
    if os.getuid() == 0 and _unprivileged() is None:
        return "PostgreSQL refuses to run as root, and there is no user postgres"
    return None


@contextmanager
def server() -> Iterator[str]:
    """Starts a server; the folder of its socket, which `database_url` takes."""
    binaries = _binaries()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="octet-pg-"))
    user = _unprivileged() if os.getuid() == 0 else None
    become: list[str | Path] = []
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups", "--pdeathsig=INT"]
    data = folder / "data"
    log = folder / "log"
    try:
        initdb: list[str | Path] = [
            binaries / "initdb",
            "-D",
            data,
            "-U",
            "octet",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
        ]
        subprocess.run(become + initdb, check=True, capture_output=True, cwd=folder)
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*become, binaries / "postgres", "-D", data, "-k", folder, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        try:
            _wait_until_ready(binaries, folder, process, log)
            yield str(folder)
        finally:
            process.terminate()
            process.wait(timeout=WORK_TIMEOUT_S)
    finally:
        shutil.rmtree(folder)


def database_url(server: str, schema: str = "public") -> str:
    return f"postgresql+psycopg://octet@/postgres?host={quote(server, safe='')}&options=-csearch_path%3D{schema}"


def _binaries() -> Path | None:
    """The folder of the newest installed server: Debian keeps them apart and off the path."""
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
