"""HTTPS: the certificate of the server, read once by the process that starts."""

from __future__ import annotations

import ssl
from pathlib import Path

from service.core.errors import InvalidInput
from service.core.settings import Settings


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """For connections over HTTP; None where they are in plain text.

    Raises:
        InvalidInput: a file cannot be read, or key and certificate do not belong together.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # 1.2 and later, with Python's choice of ciphers
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidInput(
            f"{settings.tls_cert} and {settings.tls_key} are no certificate and its key: {error}",
            hint="PEM files, the key without a password",
        ) from error
    return context


def pem_of(settings: Settings) -> tuple[bytes, bytes] | None:
    """The private key and the certificates as gRPC wants them; None where it speaks in plain text.

    Raises:
        InvalidInput: a file cannot be read.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return _read(settings.tls_key), _read(settings.tls_cert)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Or OpenSSL would ask for one at the terminal."""
    raise ValueError("the key needs a password")
