"""Checks of the TLS certificate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.certificates import make_certificate
from service.core.cluster.certificate import certificate_of
from service.core.errors import InvalidInput
from service.core.settings import Settings


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_an_invalid_certificate_is_named(tmp_path: Path, files: tuple[Path, Path]) -> None:
    cert, key = files
    (tmp_path / "text.pem").write_text("no certificate")
    other = tmp_path / "other"
    other.mkdir()
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked],
        check=True,
        capture_output=True,
    )
    for pair in (
        (tmp_path / "absent.pem", key),
        (tmp_path / "text.pem", key),
        (cert, make_certificate(other)[1]),
        (cert, locked),
    ):
        with pytest.raises(InvalidInput, match="not a certificate and its key"):
            certificate_of(Settings(tls_cert=pair[0], tls_key=pair[1]))


def test_a_certificate_needs_its_key(files: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match="must be set together"):
        Settings(tls_cert=files[0])
