"""Starts Azurite, an emulator of Azure Blob Storage that checks signatures, on a loopback port."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from importlib.util import find_spec
from pathlib import Path

import httpx

from tests.support.waiting import WORK_TIMEOUT_S, eventually

CONTAINER = "octet"
PROGRAM = "azurite-blob"
# The account that all Azure emulators share: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-12-02"


def why_not() -> str | None:
    """Returns the reason why no server can be started on this machine, or None if one can."""
    if shutil.which(PROGRAM) is None:
        return "Azurite is not installed (npm install --global azurite)"
    if find_spec("obstore") is None:
        return "obstore is not installed"
    return None


def environment(port: int) -> dict[str, str]:
    """Returns the environment variables that contain the address and the credentials for clients of the container."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{_ACCOUNT}",
        "AZURE_ALLOW_HTTP": "true",
    }


@contextmanager
def server() -> Iterator[int]:
    """Starts a server with an empty container, and yields its port."""
    folder = Path(tempfile.mkdtemp(prefix="octet-azure-"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    # Newer clients send newer protocol versions than Azurite supports, but use none of their features.
    command = [PROGRAM, *where, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=folder, env={**os.environ, "HOME": str(folder)}
        )
    try:
        eventually(lambda: _listens(port, process, log), WORK_TIMEOUT_S)
        _make_container(port)
        yield port
    finally:
        process.kill()
        process.wait(timeout=WORK_TIMEOUT_S)
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _make_container(port: int) -> None:
    """Creates the container with a request signed by the shared key, because Octet's client cannot create one."""
    date, path = formatdate(usegmt=True), f"/{_ACCOUNT}/{CONTAINER}"
    to_sign = f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{_ACCOUNT}{path}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), to_sign.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": _VERSION, "authorization": f"SharedKey {_ACCOUNT}:{signature}"}
    url = f"http://127.0.0.1:{port}{path}?restype=container"
    httpx.put(url, headers=headers, timeout=WORK_TIMEOUT_S).raise_for_status()
