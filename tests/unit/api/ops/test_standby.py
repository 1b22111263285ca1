"""Tests of TLS certificates, and of the standby's responses over TLS, with a certificate created by `openssl`."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scripts.certificates import make_certificate
from service.api.ops.standby import Standby
from service.core.cluster.certificate import certificate_of
from service.core.settings import Settings
from tests.support.waiting import GIVE_UP_S


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def context(files: tuple[Path, Path]) -> ssl.SSLContext:
    certificate = certificate_of(Settings(tls_cert=files[0], tls_key=files[1]))
    assert certificate is not None
    return certificate.context


@pytest.fixture
def client(files: tuple[Path, Path]) -> Iterator[httpx.Client]:
    with httpx.Client(
        verify=ssl.create_default_context(cafile=str(files[0])), timeout=GIVE_UP_S, trust_env=False
    ) as client:
        yield client


def test_old_protocols_are_refused(context: ssl.SSLContext) -> None:
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_responses_sent_on_behalf_of_the_server_are_encrypted_too(
    client: httpx.Client, context: ssl.SSLContext
) -> None:
    loop = asyncio.new_event_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        standby = Standby(listener, context)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(_begin(standby), loop).result()
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            answer = client.post(f"{url}/v2/models/m/infer", content=bytes(1 << 20))
            assert (answer.status_code, answer.json()["detail"]) == (503, "the server is starting")
            assert client.get(f"{url}/v2/health/live").status_code == 200
        finally:
            asyncio.run_coroutine_threadsafe(_end(standby), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _begin(standby: Standby) -> None:
    standby.begin("the server is starting")


async def _end(standby: Standby) -> None:
    standby.end()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*others), GIVE_UP_S)
    await asyncio.sleep(0.1)
