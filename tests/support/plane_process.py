"""`octet worker serve` as a process."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_PATIENCE_S = 60


@dataclass(frozen=True)
class PlaneProcess:
    """One that answers."""

    url: str
    grpc: str
    pid: int

    def memory_kb(self) -> int:
        """What of its memory it does not share, and its part of the rest."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def plane(models: Sequence[str], **settings: str) -> Iterator[PlaneProcess]:
    """Serves `models`, `NAME=DIR` each, on free ports; with settings of the environment, by their names."""
    command = [sys.executable, "-m", "service.cli", "worker", "serve", *models, "--port=0", "--grpc-port=0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | settings)
    assert process.stdout is not None
    try:
        with process.stdout as stdout:
            said = json.loads(stdout.readline())
        trusted = settings.get("OCTET_TLS_CERT")
        verify = ssl.create_default_context(cafile=trusted) if trusted else False
        httpx.get(f"{said['url']}/v2/health/live", timeout=_PATIENCE_S, verify=verify).raise_for_status()
        yield PlaneProcess(said["url"], said["grpc"], process.pid)
        process.terminate()
        assert process.wait(_PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
