"""Starts a real OCI registry, Debian's docker-registry, in a temporary folder on a loopback port."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import WORK_TIMEOUT_S

PROGRAM = "docker-registry"
SERVICE, ISSUER = "octet-test", "octet-issuer"
USER, PASSWORD = "tester", "secret"
_HASH = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"  # the hash of PASSWORD
_CONFIGURATION = """
version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {folder}/blobs}}
  delete: {{enabled: true}}
http:
  addr: 127.0.0.1:{port}
  secret: anything
{auth}
"""


def why_not() -> str | None:
    """Returns the reason why no registry can be started on this machine, or None if one can."""
    return None if shutil.which(PROGRAM) else "no registry is installed (Debian: apt-get install docker-registry)"


@contextmanager
def registry(folder: Path, auth: str = "") -> Iterator[str]:
    """Starts an empty registry, and yields its host and port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    configuration, log = folder / "config.yml", folder / "log"
    configuration.write_text(_CONFIGURATION.format(folder=folder, port=port, auth=auth))
    with log.open("wb") as output:
        process = subprocess.Popen([PROGRAM, "serve", configuration], stdout=output, stderr=output)
    try:
        _wait(port, process, log)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=WORK_TIMEOUT_S)


def basic_auth(folder: Path) -> str:
    """Returns the part of the configuration that requires the credentials `USER` and `PASSWORD`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "htpasswd").write_text(f"{USER}:{_HASH}\n")
    return f"auth:\n  htpasswd: {{realm: octet, path: {folder}/htpasswd}}\n"


def token_auth(realm: str, certificate: Path) -> str:
    """Returns the part of the configuration that requires tokens from the server at `realm`."""
    members = f"realm: '{realm}', service: {SERVICE}, issuer: {ISSUER}, rootcertbundle: {certificate}"
    return f"auth:\n  token: {{{members}}}\n"


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + WORK_TIMEOUT_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"the registry did not start:\n{log.read_text()}") from None
            time.sleep(0.05)
