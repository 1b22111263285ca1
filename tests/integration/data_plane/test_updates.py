"""A data plane that runs alone reads its certificate and its keys again when they change."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from scripts.certificates import make_certificate
from service.api.access import stores_of
from service.api.access.keys import KeyRing
from service.core.access.key import Limits, Scope
from service.core.settings import Settings
from tests.support.child_process import is_running
from tests.support.plane_process import plane
from tests.support.serving import children_of
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually


def served_certificate(url: str) -> str:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    return ssl.get_server_certificate((address.hostname, address.port), timeout=GIVE_UP_S).strip()


def renew(folder: Path, old: tuple[Path, Path]) -> str:
    """Replaces the certificate and the key by another pair, in the way renewal programs do."""
    folder.mkdir()
    cert, key = make_certificate(folder)
    text = cert.read_text().strip()
    for new, position in zip((cert, key), old, strict=True):
        new.replace(position)
    return text


def test_a_renewed_certificate_is_used_and_an_invalid_one_is_not(digits: Path, tmp_path: Path) -> None:
    pair = make_certificate(tmp_path)
    with plane([f"digits={digits}"], OCTET_TLS_CERT=str(pair[0]), OCTET_TLS_KEY=str(pair[1])) as served:
        first = served_certificate(served.url)
        assert first == pair[0].read_text().strip()
        second = renew(tmp_path / "second", pair)
        assert second != first
        eventually(lambda: served_certificate(served.url) == second)
        pair[1].write_text("no key")
        time.sleep(2)  # long enough for the files to be read again
        assert served_certificate(served.url) == second
        third = renew(tmp_path / "third", pair)
        eventually(lambda: served_certificate(served.url) == third)


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return stores_of(Settings(data_dir=tmp_path)).ring()


def status(url: str, key: str | None = None) -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{url}/v2/models/digits", headers=headers, timeout=GIVE_UP_S).status_code


def test_keys_are_required_and_changes_of_the_keys_take_effect(digits: Path, keys: KeyRing, tmp_path: Path) -> None:
    first, text = keys.create("first", [Scope.PREDICT])
    with plane([f"digits={digits}"], OCTET_KEYS_FILE=str(tmp_path / "keys.json")) as served:
        assert [status(served.url, key) for key in (text, None, "octet_0_0")] == [200, 401, 401]
        with grpc.insecure_channel(served.grpc) as channel:
            metadata = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
            with pytest.raises(grpc.RpcError) as refused:
                metadata(b"", timeout=GIVE_UP_S)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            metadata(b"", timeout=GIVE_UP_S, metadata=[("authorization", f"Bearer {text}")])
        assert httpx.get(f"{served.url}/v2/health/ready").status_code == 200
        _, second = keys.create("second", [Scope.PREDICT])
        eventually(lambda: status(served.url, second) == 200)
        keys.revoke(first.id)
        eventually(lambda: status(served.url, text) == 401)
        (tmp_path / "keys.json").write_text("{")
        assert status(served.url, second) == 200
        (tmp_path / "keys.json").unlink()
        eventually(lambda: status(served.url, second) == 401)
        assert status(served.url) == 401


def test_a_quota_is_kept_when_the_keys_change(digits: Path, keys: KeyRing, tmp_path: Path) -> None:
    _, text = keys.create("first", [Scope.PREDICT], Limits(requests_per_day=3))
    with plane([f"digits={digits}"], OCTET_KEYS_FILE=str(tmp_path / "keys.json")) as served:
        assert [status(served.url, text) for _ in range(2)] == [200, 200]
        _, second = keys.create("second", [Scope.PREDICT])
        eventually(lambda: status(served.url, second) == 200)
        assert [status(served.url, text) for _ in range(2)] == [200, 429]


def test_without_a_key_in_the_file_it_does_not_start(digits: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli", "worker", "serve", str(digits), "--port=0", "--grpc-port=0"]
    done = subprocess.run([*command, "--keys", str(tmp_path / "keys.json")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "contains no API key" in done.stderr


def test_the_helper_processes_end_with_the_data_plane_however_it_ends(
    digits: Path, keys: KeyRing, tmp_path: Path
) -> None:
    """One helper reads the keys, and another starts the preprocessing process."""
    keys.create("first", [Scope.PREDICT])
    command = [sys.executable, "-m", "service.cli", "worker", "serve", str(digits), "--port=0", "--grpc-port=0"]
    options = ["--json", "--keys", str(tmp_path / "keys.json")]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            helpers = children_of(process.pid)
            for helper in helpers:
                os.kill(helper, signal.SIGTERM)
                os.kill(helper, signal.SIGINT)
        finally:
            process.kill()
        assert len(helpers) == 2
        eventually(lambda: not any(map(is_running, helpers)))


# Forks the helper, and prints what it sends. This is a separate process, because pytest has several threads.
_FORKING = """
from service.workers.data_plane.updates import fork_updater

held = [({"type": "keys", "keys": number}, b"") for number in (1, 1, 2)]
with fork_updater(lambda: [held.pop(0) if len(held) > 1 else held[0]], held[:1]) as channel:
    print(channel.recv(1 << 16))
    channel.settimeout(1)
    try:
        print(channel.recv(1))
    except TimeoutError:
        print("nothing")
"""


def test_unchanged_orders_are_not_sent_again() -> None:
    command = [sys.executable, "-c", _FORKING]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WORK_TIMEOUT_S)
    order, rest = done.stdout.splitlines()
    assert '"keys":2' in order.replace(" ", "")
    assert rest == "nothing"
