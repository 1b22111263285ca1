"""Tests of certificates that are renewed while the server runs, correctly and incorrectly."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scripts.certificates import make_certificate
from tests.support.serving import Served, serving
from tests.support.waiting import GIVE_UP_S, eventually


@dataclass
class Scene:
    served: Served
    cert: Path
    private: Path
    log: Path

    def served_certificates(self) -> set[str]:
        """Returns the certificates that clients now get over HTTPS and over gRPC, in PEM format."""
        return {_served_certificate(urlsplit(url).netloc, kind) for url, kind in self.addresses()}

    def addresses(self) -> list[tuple[str, str]]:
        return [(self.served.url, "http/1.1"), (f"//{self.served.grpc}", "h2")]

    def renew(self, folder: Path, *, with_key: bool = True) -> str:
        """Replaces the certificate and the key by another pair, and returns the certificate that clients should get
        then.
        """
        folder.mkdir()
        cert, private = make_certificate(folder)
        for new, old in ((cert, self.cert), (private, self.private))[: 2 if with_key else 1]:
            shutil.copyfile(new, folder / "new")
            (folder / "new").replace(old)  # renewal programs replace files in this way
        return _normalize(cert.read_text())

    def is_served(self, cert: str) -> bool:
        try:
            return self.served_certificates() == {cert}
        except OSError:
            return False


def _served_certificate(address: str, protocol: str) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=GIVE_UP_S) as plain,
        context.wrap_socket(plain) as connection,
    ):
        assert connection.selected_alpn_protocol() == protocol
        cert = connection.getpeercert(binary_form=True)
        assert cert is not None
        return ssl.DER_cert_to_PEM_cert(cert)


def _normalize(pem: str) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(pem))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    cert, private = make_certificate(tmp_path)
    path = tmp_path / "log"
    with path.open("w") as log, serving(tmp_path, log, tls_cert=cert, tls_key=private) as served:
        yield Scene(served, cert, private, path)
        assert served.stop() == 0


def test_a_renewed_certificate_is_used_and_a_wrong_one_is_not(scene: Scene, tmp_path: Path) -> None:
    server = scene.served.data_plane()
    first = _normalize(scene.cert.read_text())
    assert scene.served_certificates() == {first}
    second = scene.renew(tmp_path / "second")
    assert second != first
    eventually(lambda: scene.is_served(second))

    scene.renew(tmp_path / "third", with_key=False)
    eventually(
        lambda: (
            scene.served_certificates() == {second} and "the previous certificate stays in use" in scene.log.read_text()
        )
    )
    assert str(scene.cert) in scene.log.read_text()
    os.kill(server, signal.SIGKILL)  # the next process cannot read a valid pair either
    eventually(lambda: scene.is_served(first) or scene.is_served(second))

    fourth = scene.renew(tmp_path / "fourth")
    eventually(lambda: scene.is_served(fourth))
    assert scene.log.read_text().count("the previous certificate stays in use") <= 3  # the warning is not repeated
