"""The commands that push to a registry, pull from it, and serve from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from service.core.digest import Digest
from tests.integration.registry.conftest import Model
from tests.support.compiled import EXAMPLES
from tests.support.signing import needs_signatures
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = needs_signatures
PICTURE = EXAMPLES / "digits" / "3.png"


def octet(model: Model, *arguments: object, status: int = 0) -> Any:
    command = [sys.executable, "-m", "service.cli", *map(str, arguments), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, env=environment(model), check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def environment(model: Model) -> dict[str, str]:
    own = {"OCTET_SIGNING_KEY": str(model.key), "OCTET_TRUSTED_KEYS": str(model.public)}
    return {**os.environ, **own, "OCTET_DATA_DIR": str(model.folder / "data")}


def test_a_folder_is_pushed_and_pulled(model: Model, host: str, tmp_path: Path) -> None:
    reference = f"oci://{host}/commands/digits:v1"
    report = octet(model, "push", "--to", reference, model.root)
    assert report == {"reference": reference, "digest": model.digest}
    pulled = octet(model, "pull", reference, tmp_path / "pulled")
    assert pulled["artifacts"] == [model.digest]
    assert octet(model, "run", tmp_path / "pulled", PICTURE)["top"][0]["class"] == 3
    assert octet(model, "verify", tmp_path / "pulled")["provenance"]["signed_by"]["name"] == "octet.pub"


def test_a_missing_tag_is_reported(model: Model, host: str, tmp_path: Path) -> None:
    missing = octet(model, "pull", f"oci://{host}/commands/none", tmp_path / "pulled", status=1)
    assert missing["error"]["code"] == "not_found"
    assert octet(model, "pull", "oci://host", tmp_path / "pulled", status=1)["error"]["code"] == "invalid_input"
    nowhere = octet(model, "push", "--to", "oci://127.0.0.1:1/a:b", model.root, status=1)
    assert nowhere["error"]["code"] == "registry_failed"
    assert octet(model, "push", tmp_path / "nothing", status=2)["error"]["code"] == "invalid_input"


def test_a_worker_serves_from_a_registry(model: Model, host: str) -> None:
    reference = f"oci://{host}/commands/digits:v1"
    octet(model, "push", "--to", reference, model.root)
    command = [sys.executable, "-m", "service.cli", "worker", "serve", reference, f"again={reference}"]
    with started(model, [*command, "--port", "0", "--no-grpc"]) as url:
        for name in ("digits", "again"):
            answer = httpx.get(f"{url}/v2/models/{name}/ready", timeout=WORK_TIMEOUT_S)
            assert answer.status_code == 200


def test_a_server_serves_from_a_registry(model: Model, host: str, tmp_path: Path) -> None:
    """The pulled artifact is verified, like the artifact of any other folder. Its signature is kept."""
    reference = f"oci://{host}/commands/digits:v1"
    octet(model, "push", "--to", reference, model.root)
    command = [sys.executable, "-m", "service.cli", "serve", "--models", reference, "--port", "0", "--no-grpc"]
    with started(model, [*command, "--data-dir", str(tmp_path), "--unsandboxed"]) as url:
        served = ready(url)
        found = json.loads(httpx.get(f"{url}/api/v1/artifacts/{served}/provenance", timeout=WORK_TIMEOUT_S).text)
        assert (served, found["payloadType"]) == (model.digest, "application/vnd.in-toto+json")
        report = octet(model, "verify", served, "--server", url)
        assert (report["verified"], report["provenance"]["signed_by"]["name"]) == (True, "octet.pub")
        # The server pushes to the registry as well.
        elsewhere = f"oci://{host}/commands/served:v2"
        assert octet(model, "push", "--to", elsewhere, "digits", "--server", url)["digest"] == served


@contextmanager
def started(model: Model, command: list[str]) -> Iterator[str]:
    """Starts a process and yields its URL. The process runs until the block ends."""
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True, env=environment(model)) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=WORK_TIMEOUT_S)


def ready(url: str) -> Digest:
    """Waits until an artifact answers, and returns its digest."""
    until_s = time.monotonic() + WORK_TIMEOUT_S
    while httpx.get(f"{url}/v2/models/digits/ready", timeout=WORK_TIMEOUT_S).status_code != 200:
        assert time.monotonic() < until_s
        time.sleep(0.2)
    (version,) = httpx.get(f"{url}/api/v1/models/digits", timeout=WORK_TIMEOUT_S).json()["versions"]
    return Digest(version["artifact"])
