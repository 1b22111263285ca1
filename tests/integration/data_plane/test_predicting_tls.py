"""Predictions by task over TLS: the control plane's connections to the data plane's port."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.api.control.predictions.predicting import Predictions, TaskPredictor
from service.api.control.predictions.samples import Sample
from service.core.errors import NotReady
from tests.support.certificates import Authority, Files
from tests.support.data_plane import DataPlane
from tests.support.runners import digits
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio
SAMPLE = Sample(values=[7] * 64)


def install(files: Files, folder: Path) -> Files:
    """Copies a certificate and its key to where the server reads them, as a renewal does."""
    installed = Files(folder / "server.pem", folder / "server.key")
    for source, place in zip(files, installed, strict=True):
        shutil.copy(source, folder / "new")
        (folder / "new").rename(place)
    return installed


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    """A data plane whose certificate is for another name, and from an authority that its file does not contain."""
    tables = Tables()
    tables.model("digits", digits)
    files = install(Authority(tmp_path).server("octet.example"), tmp_path)
    plane = DataPlane(tables, tls_cert=files.cert, tls_key=files.key)
    async with plane.lifespan():
        yield plane


@pytest.fixture
async def predictions(plane: DataPlane) -> AsyncIterator[Predictions]:
    settings = plane.services.settings
    host, _, port = plane.http.partition(":")
    predictions = Predictions(settings.model_copy(update={"host": host, "port": int(port)}))
    yield predictions
    predictions.close()


async def columns(predictions: Predictions) -> list[float]:
    outputs = (await TaskPredictor(predictions, "/v2/models/digits").predict(SAMPLE)).result["outputs"]
    return list(outputs[0]["values"][0])


async def test_predictions_are_sent_over_tls(predictions: Predictions) -> None:
    assert await columns(predictions) == [56] * 8
    assert await columns(predictions) == [56] * 8  # over the connection that was kept


async def test_a_renewed_certificate_interrupts_no_prediction(
    predictions: Predictions, plane: DataPlane, tmp_path: Path
) -> None:
    """The data plane uses the new certificate up to 1.5 s later than this client reads it."""
    assert await columns(predictions) == [56] * 8
    presented = {await certificate_of(plane)}
    install(Authority(tmp_path, "other").server("octet.example"), tmp_path)
    until_s = time.monotonic() + GIVE_UP_S
    while len(presented) < 2:
        assert time.monotonic() < until_s, "the data plane does not use the new certificate"
        predictions.close()  # each prediction opens a new connection
        assert await columns(predictions) == [56] * 8
        presented.add(await certificate_of(plane))
    assert await columns(predictions) == [56] * 8


async def test_another_server_at_the_port_receives_no_key(
    predictions: Predictions, plane: DataPlane, tmp_path: Path
) -> None:
    """A certificate from the same authority is not enough: it has to be the server's own."""
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    files = Authority(stranger).server("octet.example")
    settings = plane.services.settings.model_copy(update={"tls_cert": files.cert, "tls_key": files.key})
    host, _, port = plane.http.partition(":")
    wary = Predictions(settings.model_copy(update={"host": host, "port": int(port)}))
    with pytest.raises(NotReady, match="the data plane did not respond"):
        await columns(wary)
    wary.close()


async def certificate_of(plane: DataPlane) -> bytes:
    """Returns the certificate that the data plane presents to a new connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = plane.http.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    return bytes(found)
