"""A data plane with the locked preprocessing process, and a client that measures what others notice of an attack."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO

import httpx
from PIL import Image

from service.core.digest import digest_of
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing
from tests.support import runners
from tests.support.data_plane import DataPlane
from tests.support.runners import encoder, identity
from tests.support.tables import Tables
from tests.support.tokenizers import wordpiece

ATTACKER, VICTIM = "127.0.0.66", "127.0.0.2"
PICTURE, TEXT = "picture", "text"
_RESTART_S = 0.1  # as the supervisor waits
_PAUSE_S = 0.1
_LIMIT_S = 120.0
_RUN = """
import sys
from service.workers.preprocess.process import run
from service.workers.supervised import Ready
run(bytes.fromhex(sys.argv[1]), Ready(1))
"""


class LockedPlane(DataPlane):
    """A data plane whose preprocessing process is a real one, which is started again when it ends.

    Attributes:
        starts: the number of processes that were started.
        peak_bytes: the largest resident memory of a process with its children.
    """

    def __init__(self, tables: Tables, log: IO[bytes]) -> None:
        super().__init__(tables, scheduling={"queue_size": 64})
        self.starts = self.peak_bytes = 0
        self._log = log

    async def _preprocess(self) -> None:
        address = (self._address + b"-preprocess").hex()
        while True:
            self.starts += 1
            command = [sys.executable, "-c", _RUN, address]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self._log)
            try:
                while process.poll() is None:
                    self.peak_bytes = max(self.peak_bytes, _resident_bytes(process.pid))
                    await asyncio.sleep(_PAUSE_S)
            finally:
                process.kill()
                process.wait()
            await asyncio.sleep(_RESTART_S)


def _resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process and its descendants, without that of files."""
    with suppress(OSError):
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return (resident - shared) * 4096 + sum(_resident_bytes(int(each)) for each in children)
    return 0


@dataclass
class Target:
    """The running server.

    Attributes:
        worst_s: the longest time that a request of the other client took.
        failures: descriptions of wrong responses to the other client.
    """

    plane: LockedPlane
    tables: Tables
    attacker: httpx.AsyncClient
    victim: httpx.AsyncClient
    log: Path
    worst_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    _log_bytes: int = 0
    _uploads: int = 0

    def new_log(self) -> str:
        """Returns what the processes have logged since the last call."""
        with self.log.open("rb") as file:
            file.seek(self._log_bytes)
            data = file.read()
        self._log_bytes += len(data)
        return data.decode(errors="replace")

    async def upload(self, tokenizer: bytes) -> str:
        """Adds a model of texts with a tokenizer. Returns its name when it is served."""
        digest = digest_of(tokenizer)
        self._uploads += 1
        name = f"hostile{self._uploads}"
        path = runners.folder() / f"{name}.json"  # the data plane identifies a tokenizer by its path
        path.write_bytes(tokenizer)
        self.tables.tokenizers[digest] = path
        metadata = ModelMetadata(task=Task.EMBED, text=TextProcessing(digest, len(tokenizer)))
        self.tables.metadata_by_version[name, 1] = metadata
        self.tables.model(name, encoder)
        while (await self.attacker.get(f"/v2/models/{name}/ready")).status_code != 200:
            await asyncio.sleep(_PAUSE_S / 10)
        return name

    async def attack_with_picture(self, data: bytes) -> int:
        return (await _post(self.attacker, PICTURE, content=data, headers={"Content-Type": "image/png"})).status_code

    async def attack_with_texts(self, model: str, *texts: str) -> int:
        return (await _post(self.attacker, model, json=_texts(*texts))).status_code

    async def watch(self) -> None:
        """Sends requests of another client, one after the other, until it is canceled."""
        picture = _white()
        while True:
            for model, request in (
                (PICTURE, {"content": picture, "headers": {"Content-Type": "image/png"}}),
                (TEXT, {"json": _texts("the fox")}),
            ):
                began_s = time.monotonic()
                response = await _post(self.victim, model, **request)
                self.worst_s = max(self.worst_s, time.monotonic() - began_s)
                expected = [255] * 12 if model == PICTURE else [2, 4, 7, 3, 0, 0, 0, 0]
                if response.status_code != 200 or response.json()["outputs"][0]["data"] != expected:
                    self.failures.append(f"{model}: {response.status_code} {response.text[:200]}")
            await asyncio.sleep(_PAUSE_S)


async def _post(client: httpx.AsyncClient, model: str, **request: object) -> httpx.Response:
    return await client.post(f"/v2/models/{model}/infer", **request)  # type: ignore[arg-type]


def _texts(*texts: str) -> dict[str, object]:
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}]}


def _white() -> bytes:
    file = BytesIO()
    Image.new("RGB", (8, 6), "white").save(file, "PNG")
    return file.getvalue()


@asynccontextmanager
async def target(log: Path) -> AsyncIterator[Target]:
    """Starts a server with a model of pictures and a model of texts."""
    data = wordpiece().to_str().encode()
    path = runners.folder() / "good.json"
    path.write_bytes(data)
    tables = Tables()
    tables.tokenizers[digest_of(data)] = path
    tables.model(PICTURE, lambda: identity("UINT8", 1, 2, 2, 3))
    tables.model(TEXT, encoder)
    text = TextProcessing(digest_of(data), len(data))
    tables.metadata_by_version[TEXT, 1] = ModelMetadata(task=Task.EMBED, text=text)
    with log.open("wb") as output:
        plane = LockedPlane(tables, output)
        async with plane.lifespan(), _client(plane, ATTACKER) as attacker, _client(plane, VICTIM) as victim:
            yield Target(plane, tables, attacker, victim, log)


def _client(plane: DataPlane, address: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=address)
    return httpx.AsyncClient(base_url=f"http://{plane.http}", transport=transport, timeout=_LIMIT_S)
